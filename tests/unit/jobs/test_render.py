"""Rendered scripts: a few as whole golden files, the others by directives and launch commands.

After a change that is meant: see golden.py.
"""

from pathlib import Path, PurePosixPath

import pytest
from builders import make_group, make_matrix_case, make_site
from golden import GOLDEN, assert_is_bash, assert_launches_are_golden, assert_script_is_golden

from dlperf_slurm.config.site import Site, load_site
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.grouping import ArrayTask, Group, group_array_tasks
from dlperf_slurm.jobs.quoting import quote_directive, quote_option
from dlperf_slurm.jobs.render import render_scripts

SITES = ("local", "slurm", "example")
TOPOLOGIES = ("1n1g", "1n8g", "2n8g", "4n8g")
# a change of behaviour shows as a change of these; see also test_machines.py and test_node_work.py
WHOLE = ("local/1n1g", "slurm/2n8g", "search/slurm", "shared_job/array")
RUN_ID = "20240501-120000-resnet50-site-abcd"
RUN_DIR = PurePosixPath("/shared/results") / RUN_ID


def render(site: Site, topology: str = "1n1g", run_dir=RUN_DIR) -> str:
    """Render the script of one array job."""
    files = render_scripts([make_group(site, topology)], site, RUN_ID, run_dir)
    return files[f"scripts/{topology}.sbatch"]


def make_search_group(site: Site) -> Group:
    """PyTorch searches for its largest batch; MXNet's batch is known."""
    cases = [
        make_matrix_case("1n2g", batch_size_per_device="max"),
        make_matrix_case("1n2g", framework="mxnet"),
    ]
    (group,) = group_array_tasks([ArrayTask(case, 1, 1) for case in cases], site, 1001)
    return group


def write_template(text: str, name: str = "own/cluster.sbatch.j2") -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    return name


@pytest.fixture
def managed(monkeypatch):
    """Set a folder of managed environments that is the same on every machine."""
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", "/shared/environments")


def render_shared(name: str) -> dict[str, str]:
    """All files of array jobs, or plain jobs, each of which runs three array tasks."""
    settings = ["tasks_per_job=3", f"arrays={'true' if name == 'array' else 'false'}"]
    site = load_site("slurm", None, settings).site
    groups = group_array_tasks(make_group(make_site()).array_tasks, site, 1001)
    return render_scripts(groups, site, RUN_ID, RUN_DIR)


def render_all() -> dict[str, str]:
    """Return the scripts of the shipped sites by the names of their golden files."""
    scripts = {}
    for name in SITES:
        site = load_site(name, None, []).site
        for topology in TOPOLOGIES:
            scripts[f"{name}/{topology}"] = render(site, topology)
        files = render_scripts([make_search_group(site)], site, RUN_ID, RUN_DIR)
        scripts[f"search/{name}"] = files["scripts/1n2g.sbatch"]
    scripts["shared_job/array"] = render_shared("array")["scripts/1n1g.sbatch"]
    scripts["shared_job/plain"] = render_shared("plain")["scripts/1n1g-1.sbatch"]
    return scripts


def test_scripts_are_as_in_their_golden_files(managed):
    scripts = render_all()
    for name in WHOLE:
        assert_script_is_golden(scripts.pop(name), GOLDEN / f"{name}.sbatch")
    assert_launches_are_golden(scripts, GOLDEN / "sites.txt")


def test_script_in_the_documents_is_the_golden_one():
    text = (GOLDEN / "slurm/2n8g.sbatch").read_text(encoding="utf-8")
    page = Path("docs/run-directory.md")
    assert f"```bash\n{text}```\n" in (GOLDEN.parents[1] / page).read_text(encoding="utf-8")


def test_golden_folder_holds_nothing_else():
    found = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()}
    assert found == {
        *(f"{name}.sbatch" for name in (*WHOLE, "machines/lumi", "nodes/2n8g")),
        *(f"{name}.txt" for name in ("containers", "machines", "sites")),
        *("nodes/2n8g.node.json", "verify.sh"),
    }


@pytest.mark.parametrize(
    ("name", "jobs", "job_id"),
    [
        ("array", {"1n1g": "0001112"}, None),
        ("plain", {"1n1g-1": "000", "1n1g-2": "000", "1n1g-3": "0"}, "${SLURM_JOB_ID:-by-hand}"),
    ],
)
def test_rows_of_array_tasks_that_share_a_job_name_it(name, jobs, job_id, managed):
    files = render_shared(name)
    for group_id, shared in jobs.items():
        rows = files[f"scripts/{group_id}.tasks"].splitlines()
        assert "".join(row.split("\t")[3] for row in rows) == shared
        lines = files[f"scripts/{group_id}.sbatch"].splitlines()
        assert f"tasks_per_job=3 last_array_task_id={len(rows) - 1}" in lines
        assert [line for line in lines if line.startswith("job_id=")] == (
            [f"job_id={job_id}"] if job_id else []
        )


def test_own_template_of_a_framework_changes_how_a_search_starts_its_ranks():
    name = write_template('{% extends "base.sbatch.j2" %}\n')
    own = """\
{% extends "frameworks/framework.sh.j2" %}
{% block search %}
  exec inside {{ framework.search_command | sh_words }} "$attempt_dir" -- ranks
{% endblock %}
"""
    write_template(own, "own/frameworks/pytorch.sh.j2")
    site = make_site(template=name)
    group = make_search_group(site)
    files = render_scripts([group], site, RUN_ID, Path("/run"))
    starters = {"pytorch": "search", "mxnet": "launch"}
    rows = [line.split("\t") for line in files["scripts/1n2g.tasks"].splitlines()]
    assert [row[:3] for row in rows] == [
        [task.case.axes.framework, task.attempt_dir, starters[task.case.axes.framework]]
        for task in group.array_tasks
    ]
    line = '  exec inside python -m dlperf_slurm.worker search "$attempt_dir" -- ranks\n'
    assert f"search_pytorch() {{\n{line}}}\n" in files["scripts/1n2g.sbatch"]


# the golden files have the other settings
def test_same_input_gives_the_same_bytes():
    values = {"A": "1", "B": "2", "C": "3"}
    turned = dict(reversed(values.items()))
    sites = [
        make_site(env=env, environments={"pytorch": {"venv": "/v", "env": env}})
        for env in (values, turned)
    ]
    assert render(sites[0]) == render(sites[1])


def test_type_of_gpus_is_a_part_of_their_number():
    assert "#SBATCH --gpus-per-node=a100:1\n" in render(make_site(gpu_type="a100"))


@pytest.mark.parametrize(("minutes", "is_warned"), [(4, False), (5, True)])
def test_short_time_limit_has_no_warning_which_could_come_at_its_start(minutes, is_warned):
    site = make_site(time_limit_minutes={"default": minutes})
    assert ("#SBATCH --signal=B:USR1@60\n" in render(site)) == is_warned


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\x00b", "a\\b", "\x1b[0m", """a"b'c"""])
def test_directive_refuses_what_sbatch_cannot_read(text):
    with pytest.raises(InputError) as caught:
        quote_directive(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("--requeue", "--requeue"),
        ("--image nersc/pytorch:25.02.01", "--image nersc/pytorch:25.02.01"),
        ("--comment a b", '--comment "a b"'),
        ("-C gpu&hbm80g", "-C gpu&hbm80g"),
        ("-C a b", '-C "a b"'),
        ("-Cgpu", "-Cgpu"),
        ("-v", "-v"),
    ],
)
def test_option_is_written_as_sbatch_reads_it(line, written):
    assert quote_option(line) == written


@pytest.mark.parametrize("line", ["comment=a", "--", "--a;b=1", "-1", "--é=1"])
def test_text_that_is_no_option_is_refused(line):
    with pytest.raises(InputError, match="option of sbatch"):
        quote_option(line)


@pytest.mark.parametrize("text", ["sync", "# nothing to clean up"])
def test_epilogue_of_an_own_template_is_what_the_harness_runs_at_the_end(text):
    block = f"{{% block epilogue %}}\n{text}\n{{% endblock %}}\n"
    script = render(make_site(template=write_template('{% extends "base.sbatch.j2" %}\n' + block)))
    assert f"finish_task() {{\n  set +u\n{text}\n}}\n" in script
    assert_is_bash(script)
    assert "finish_task" not in render(make_site())
