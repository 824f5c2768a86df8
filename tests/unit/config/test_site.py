"""Sites: which file is chosen, which layer wins, what is refused, what is in force."""

from pathlib import Path

import pytest
from builders import SMALL_MATRIX, give_to_another_user, make_site, write_matrix, write_program
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_environments_dir, find_resource_dir
from dlperf_slurm.config.site import choose_site_file, load_site
from dlperf_slurm.config.toml_tables import read_toml
from dlperf_slurm.errors import InputError
from dlperf_slurm.launchers import LAUNCHERS
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.worker.frameworks import list_frameworks


def write_site(text: str, path: str = "site.toml") -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return path


def write_user_file(text: str) -> None:
    write_site(text, ".config/dlperf-slurm/config.toml")


def read_mistakes(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_site(write_site(text), None, [])
    return str(caught.value).splitlines()


LAYERS = {
    "site": ("", None, []),
    "user": ("partition = 'user'\n", None, []),
    "matrix": ("partition = 'user'\n", "[slurm]\npartition = 'matrix'\n", []),
    "set": ("partition = 'user'\n", "[slurm]\npartition = 'matrix'\n", ["partition=set"]),
    "last": ("", "[slurm]\npartition = 'matrix'\n", ["partition=set", "partition=last"]),
}


@pytest.mark.parametrize("winner", LAYERS)
def test_later_layer_wins(winner):
    user, matrix, assignments = LAYERS[winner]
    write_user_file(user)
    file = read_toml(write_matrix(matrix)) if matrix else None
    assert load_site(write_site("partition = 'site'\n"), file, assignments).site.partition == winner


def test_layers_are_merged_key_by_key_inside_tables():
    write_user_file("[env]\nB = 'user'\n")
    loaded = load_site(write_site("[env]\nA = 'site'\nB = 'site'\n"), None, ["env.C=set"])
    assert loaded.site.env == {"A": "site", "B": "user", "C": "set"}


def test_mistakes_of_all_layers_come_in_one_answer():
    write_user_file("\nacount = 'a'\n")
    matrix = read_toml(write_matrix("[slurm]\nexclusive = 'yes'\n"))
    with pytest.raises(InputError) as caught:
        load_site(write_site("partion = 'gpu'\n"), matrix, ["max_nodes=many"])
    answer = str(caught.value)
    for mistake in (
        "site.toml:1: partion: unknown key",
        "config.toml:2: acount: unknown key",
        "matrix.toml:2: slurm.exclusive: 'yes' is not true or false",
        "--set max_nodes=many: max_nodes: 'many' is not an integer",
    ):
        assert mistake in answer


MISTAKES = [
    ("[time_limit_minutes]\n'4n' = 60", "time_limit_minutes.4n", ("NODESnDEVICESg", "2n8g")),
    (
        "environments.pytroch.venv = '/x'",
        *("environments.pytroch", (f"known: {', '.join(list_frameworks())}", "mean 'pytorch'")),
    ),
    ("[env]\n'A-B' = 'x'", "env.A-B", ("'A-B'", "letters, digits and _")),
    ("[env]\nA = true", "env.A", ("not a string", '"true"', "'\"true\"'")),
    ("[env]\nattempt_dir = '/'", "env.attempt_dir", ("'attempt_dir'", "job script")),
    ("directives = '--output=/tmp/x'", "directives", ("'--output=/tmp/x': --output",)),
    (
        "directives = ['--requeue', '--arr=0-9']",
        "directives[1]",
        ("'--arr=0-9': --array", "matrix"),
    ),
    ("directives = ['mail-type=END']", "directives[0]", ("'--name=value'", "'-C value'")),
    ("directives = '--comment=\\'", "directives", ("'--comment=\\\\'", "backslashes")),
    ('directives = "--comment=a\\nb"', "directives", ("'--comment=a\\nb'", "line breaks")),
    ("directives = ['-M one']", "directives[0]", ("'-M one': --clusters", "by clusters")),
    ("gpu_request = 'gpus-per-nodes'", "gpu_request", ("allowed: gpus-per-node, gres, none",)),
    ("rendezvous.host_suffix = '$(x)'", "rendezvous.host_suffix", ("pattern",)),
    ("rendezvous.interface = 'ib0/1'", "rendezvous.interface", ("pattern",)),
    ("rendezvous.interface = 'sixteen-letters-'", "rendezvous.interface", ("pattern",)),
    ("clusters = 'one,two'", "clusters", ("'one,two'", "pattern")),
    ("umask = '0888'", "umask", ("pattern",)),
    ("ranks = 'slrum'", "ranks", ("known: mpi, slurm, torchrun",)),
    ("inherit = ['SBATCH_WAIT']", "inherit[0]", ("'SBATCH_WAIT'",)),
    ("inherit = ['SLURM_CONF']", "inherit[0]", ("'SLURM_CONF'", "SBATCH_ACCOUNT")),
    ("tasks_per_job = 0", "tasks_per_job", ("allowed: at least 1",)),
    ("environments.pytorch.venv = '/opt/a:b'", "environments.pytorch.venv", ("':'", "PATH")),
    ("[node.check]\ngpus = true", "node.check.gpus", ("unknown key", "devices")),
    *(
        (f"datasets.x.stage_to = '{place}'", "datasets.x.stage_to", (f"'{place}'", why))
        for place, why in (
            ("scratch/digits", "begins with '/' or a variable"),
            ("$TMPDIR", "begins with '/' or a variable"),
            ("$TMPDIR/../digits", "'..'"),
        )
    ),
    # what whoever writes a site file plausibly gets wrong
    ("queue = 'gpu'", "queue", ("unknown key", "mean 'partition'", "account")),
    ("gpu_type = 'gpu:a100'", "gpu_type", ("such as 'a100'",)),
    ("time_limit_minutes = 5", "time_limit_minutes", ("table", "default = 30")),
    (
        "time_limit_minutes.defualt = 5",
        "time_limit_minutes.defualt",
        ("as in '2n8g'", "mean 'default'"),
    ),
    ("max_submitted = '4'", "max_submitted", ("integer", "quotes", ": 4")),
    ("exclusive = 'true'", "exclusive", ("false", "quotes", ": true")),
    (
        "launcher.name = 'mpiexec'",
        *("launcher.name", (f"known: {', '.join(sorted(LAUNCHERS))}", "mean 'mpirun'")),
    ),
]


@pytest.mark.parametrize(("text", "key", "says"), MISTAKES)
def test_mistake_has_its_line_its_key_and_its_remedy(text, key, says):
    (mistake,) = read_mistakes(text)
    assert_problem(mistake, file="site.toml", line=text.count("\n") + 1, key=key, says=says)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("account = proj42", ("text in quotes",)),
        ("time_limit = 90min", ("text in quotes",)),
        ("umask = 022", ('put it in quotes: "022"',)),
        ("exclusive = True", ("true or false",)),
        ("device: cuda", ("KEY = VALUE",)),
        ("scheduler = 'local'", ("twice",)),
    ],
)
def test_line_that_is_no_toml_is_shown_with_what_was_probably_meant(line, says):
    with pytest.raises(InputError, match=r"^site\.toml: not valid TOML: .*at line 2") as caught:
        load_site(write_site(f"scheduler = 'slurm'\n{line}\n"), None, [])
    assert_problem(caught.value, file="site.toml", key="not valid TOML", says=(line, *says))


def test_requested_site_is_looked_up_by_name_in_the_working_directory_first(bin_dir):
    own = write_site("", ".config/dlperf-slurm/site_configs/slurm.toml")
    assert choose_site_file("slurm") == Path(own).absolute()
    path = write_site("", "site_configs/slurm.toml")
    assert choose_site_file("slurm") == Path(path)


@pytest.mark.parametrize("strange", ["site_configs", "site_configs/slurm.toml"])
@pytest.mark.parametrize("requested", ["slurm", None])
def test_site_file_of_another_user_is_taken_only_by_its_path(
    bin_dir, monkeypatch, strange, requested
):
    write_program(bin_dir, "sbatch", "exit 1")
    path = Path(write_site("", "site_configs/slurm.toml"))
    give_to_another_user(monkeypatch, Path(strange))
    with pytest.raises(InputError) as caught:
        choose_site_file(requested)
    assert_problem(caught.value, file=str(path), says=("user 4242", f"--site {path}"))
    assert choose_site_file(str(path)) == path
    assert choose_site_file("local") == find_resource_dir("site_configs") / "local.toml"


def test_link_of_another_user_is_taken_only_by_its_path(monkeypatch):
    write_site("", "own/slurm.toml")
    Path("site_configs").symlink_to("own")
    give_to_another_user(monkeypatch, Path("site_configs"))
    with pytest.raises(InputError):
        choose_site_file("slurm")


def test_unknown_site_lists_the_known_ones_and_the_nearest():
    with pytest.raises(InputError) as caught:
        choose_site_file("locla")
    assert_problem(caught.value, key="--site locla", says=("alps", "example", "mean 'local'"))
    with pytest.raises(InputError) as caught:
        load_site("own/there.toml", None, [])
    assert_problem(caught.value, file="own/there.toml", says=("no such file",))


@pytest.mark.parametrize(
    ("answer", "site"),
    [
        ("echo ClusterName = alpha", "alpha"),
        ("echo ClusterName = beta", "slurm"),
        ("exit 1", "slurm"),
        (None, "local"),
    ],
)
def test_site_is_that_of_the_cluster_here(bin_dir, answer, site):
    write_site("", "site_configs/alpha.toml")
    if answer is not None:
        write_program(bin_dir, "sbatch", "exit 1")
        write_program(bin_dir, "scontrol", answer)
    assert choose_site_file(None).name == f"{site}.toml"
    assert choose_site_file("local").name == "local.toml"


@pytest.mark.parametrize(
    ("value", "settings", "clusters"),
    [
        ("far", [], "far"),
        ("far", ["clusters=near"], "near"),
        ("far", ['scheduler="local"'], None),
        ("far,near", [], None),
        ("all", [], None),
        ("", [], None),
    ],
)
def test_cluster_of_the_shell_is_that_of_a_site_that_names_none(
    monkeypatch, value, settings, clusters
):
    monkeypatch.setenv("SLURM_CLUSTERS", value)
    loaded = load_site("slurm", None, settings)
    assert loaded.site.clusters == clusters
    if clusters == "far":
        assert loaded.sources["clusters",] == "SLURM_CLUSTERS"


def test_template_is_looked_for_beside_the_file_that_names_it(home):
    (home / "own").mkdir()
    text = "template = 'x.sbatch.j2'\n[[override]]\nwhen.nodes = 2\ntemplate = 'y.sbatch.j2'\n"
    path = write_site(text, "own/site.toml")
    matrix = read_toml(write_matrix("[slurm]\ntemplate = 'z.sbatch.j2'\n", "own/matrix.toml"))
    site = load_site(path, None, []).site
    assert site.template == str(home / "own/x.sbatch.j2")
    assert site.override[0].template == str(home / "own/y.sbatch.j2")
    assert load_site(path, matrix, []).site.template == str(home / "own/z.sbatch.j2")
    # of the command line, in the working directory
    chosen = load_site(path, matrix, ["template=s.sbatch.j2"]).site.template
    assert chosen == str(home / "s.sbatch.j2")


def test_framework_without_an_environment_of_the_sites_own_gets_the_managed_one(home):
    managed = str(home / ".environments/pytorch")
    for named, venv in (({"env": {"A": "1"}}, managed), ({"modules": "pytorch/2.5"}, None)):
        chosen = make_site(environments={"pytorch": named}).find_environment("pytorch")
        assert (chosen.venv, chosen.env) == (venv, named.get("env", {}))


def test_text_with_a_nul_is_refused_in_files_and_options():
    message = "env.A: 'x\\x00y' contains a NUL character, which is not allowed"
    assert read_mistakes('env.A = "x\\u0000y"\n') == [f"site.toml: not valid TOML: {message}"]
    with pytest.raises(InputError, match=r"--set .*contains a NUL"):
        load_site(write_site(""), None, ['env.A="x\\u0000y"'])


def test_settings_folder_that_is_not_absolute_counts_as_not_set(monkeypatch):
    write_user_file("partition = 'user'\n")
    write_site("partition = 'of the working directory'\n", "here/dlperf-slurm/config.toml")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    assert load_site(write_site(""), None, []).site.partition == "user"


def test_matrix_and_site_file_that_are_swapped_are_named_as_such(home):
    site, matrix = write_site("scheduler = 'local'\n"), write_matrix(SMALL_MATRIX)
    with pytest.raises(InputError, match=rf"{site}: is a site file.*--site {site}"):
        read_matrix(Path(site))
    with pytest.raises(InputError, match=rf"{matrix}: is a matrix.* MATRIX"):
        load_site(str(matrix), None, [])


def test_byte_order_mark_is_passed_over():
    assert load_site(write_site("\ufeffpartition = 'gpu'\n"), None, []).site.partition == "gpu"


def test_site_of_all_users_is_found_by_name_after_the_users_own(home, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"relative:{home}/b:{home}/a")
    for partition in ("a", "b"):
        text = f"partition = '{partition}'\n"
        write_site(text, f"{partition}/dlperf-slurm/site_configs/alps.toml")
    assert load_site("alps", None, []).site.partition == "b"
    write_site("partition = 'own'\n", ".config/dlperf-slurm/site_configs/alps.toml")
    assert load_site("alps", None, []).site.partition == "own"


@pytest.mark.parametrize("folder", ["~nobody-here/x", "/a:b"])
def test_folder_of_environments_that_cannot_be_is_refused_by_its_variable(folder, monkeypatch):
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", folder)
    with pytest.raises(InputError, match=f"^DLPERF_SLURM_ENVIRONMENTS: '{folder}': "):
        find_environments_dir()


def test_user_without_a_home_is_told_so(monkeypatch):
    monkeypatch.setenv("HOME", "~")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    with pytest.raises(InputError, match=r"'~/.config': .* HOME"):
        load_site(write_site(""), None, [])


def test_data_set_is_a_folder_or_a_table_to_which_layers_add():
    path = write_site("[datasets]\ndigits = '/data/digits'\nother = '/data/other'\n")
    site = load_site(path, None, ["datasets.digits.stage_to=$TMPDIR/digits"]).site
    digits = site.find_dataset("digits")
    assert (digits.path, digits.stage_to) == ("/data/digits", "$TMPDIR/digits")
    assert site.find_dataset("other").stage_to is None
