"""What a cluster says becomes a site file that works as it is."""

import pytest
from builders import write_program
from slurm_clients import RECORDED, SCONTROL, VERSIONS, put_clients
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.config.site import load_site
from dlperf_slurm.provision.sites.login_node import LoginNodeTools
from dlperf_slurm.provision.sites.site_file import write_site_file
from dlperf_slurm.provision.sites.survey import Association, NodeKind, Partition, Survey

NAME = "site_configs/testbed.toml"


def make_partition(name="gpu", **changes):
    values = {
        "is_default": False,
        "is_up": True,
        "is_exclusive": False,
        "max_nodes": None,
        "max_minutes": None,
        "accounts": None,
        "qos": None,
        "nodes": (NodeKind(4, 64, 512000, (("a100", 4),), ""),),
        **changes,
    }
    return Partition(name, **values)


def make_survey(*partitions, **values):
    return Survey("here", "25.05.1", partitions=partitions or (make_partition(),), **values)


def load(text, folder):
    (folder / "here.toml").write_text(text, encoding="utf-8")
    return load_site(str(folder / "here.toml"), None, ()).site


@pytest.mark.parametrize("version", VERSIONS)
def test_file_is_made_of_what_the_clients_of_each_version_print(version, bin_dir, home, capsys):
    put_clients(bin_dir, version)
    assert main(["site", "init"]) == 0
    assert capsys.readouterr().out.splitlines() == [NAME, "Next: dlperf-slurm doctor"]
    # found by the cluster's own name
    site = load_site(None, None, ()).site
    assert (site.partition, site.max_nodes, site.max_devices_per_node) == ("main", 4, 8)
    assert (site.device, site.gpu_request, site.cpus_per_rank) == ("cuda", "gres", 2)
    assert site.time_limit_minutes == {"default": 30}
    assert (site.launcher.name, site.launcher.mpi) == ("srun", "pmix")
    text = (home / NAME).read_text(encoding="utf-8")
    for line in (
        f"# Cluster testbed, Slurm {version}",
        "#   small: 1 x 16 cores, 31 GiB, 8 x GPU; 2 min\n",
        '# account = "test"  # your default',
        "#   QOS limited: at most 5 min and 4 jobs\n",
        '# qos = "normal"  # your default\n',
        "# MaxArraySize is 1001",
        "# ASK THE ADMIN: can jobs use containers?",
    ):
        assert line in text


def test_cluster_of_the_shell_is_the_one_that_is_asked(bin_dir, home, monkeypatch):
    put_clients(bin_dir, "22.05")
    for name in ("scontrol", "sinfo"):
        here = (bin_dir / name).read_text(encoding="utf-8").partition("\n")[2]
        write_program(bin_dir, name, f'[ "$1" = --clusters=far ] || exit 1\nshift\n{here}')
    monkeypatch.setenv("SLURM_CLUSTERS", "far")
    assert main(["site", "init"]) == 0
    monkeypatch.delenv("SLURM_CLUSTERS")
    site = load_site(NAME, None, ()).site
    assert site.clusters == "far"
    assert site.max_nodes


def test_ranks_on_cores_ask_for_no_gpus(bin_dir, home):
    put_clients(bin_dir, "22.05")
    assert main(["site", "init", "cpu.toml", "--device", "cpu"]) == 0
    site = load_site("cpu.toml", None, ()).site
    assert (site.device, site.gpu_request) == ("cpu", "none")
    assert (site.max_devices_per_node, site.cpus_per_rank) == (16, 1)


def test_file_that_is_there_is_kept(bin_dir, home, capsys):
    put_clients(bin_dir, "22.05")
    (home / "mine.toml").write_text("# mine\n", encoding="utf-8")
    assert main(["site", "init", "mine.toml"]) == 2
    assert_problem(capsys.readouterr().err, file="mine.toml", says=("FILE",))
    assert (home / "mine.toml").read_text(encoding="utf-8") == "# mine\n"


def test_cluster_that_does_not_answer_is_the_schedulers_error(bin_dir, home, capsys):
    write_program(bin_dir, "scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert main(["site", "init"]) == 3
    error = capsys.readouterr().err
    assert "scontrol ping" in error
    assert "--site local" in error
    assert not (home / "site_configs").exists()


def test_configuration_that_users_may_not_read_leaves_the_other_clients_to_ask(bin_dir, home):
    put_clients(bin_dir, "22.05")
    denied = 'case "$*" in *" config") echo "Access/permission denied" >&2; exit 1 ;; esac\n'
    write_program(bin_dir, "scontrol", denied + SCONTROL.format(folder=RECORDED / "22.05"))
    # the name of the cluster is not known
    assert main(["site", "init"]) == 2
    assert main(["site", "init", "here.toml"]) == 0
    text = (home / "here.toml").read_text(encoding="utf-8")
    assert ('partition = "main"' in text, "Your accounts: " in text) == (True, True)


def test_client_that_fails_becomes_a_question_for_the_admin(bin_dir, home):
    put_clients(bin_dir, "22.05")
    write_program(bin_dir, "sacctmgr", "echo 'sacctmgr: error: refused' >&2; exit 1")
    assert main(["site", "init"]) == 0
    text = (home / NAME).read_text(encoding="utf-8")
    assert "# ASK THE ADMIN: `sacctmgr --noheader --parsable2 show associations where " in text
    assert "# ASK THE ADMIN: which account" in text
    assert load_site(NAME, None, ()).site.partition == "main"


def test_partition_with_gpus_is_taken_before_the_default_one(home):
    cpus = make_partition("cpu", is_default=True, nodes=(NodeKind(100, 128, 1, (), ""),))
    site = load(write_site_file(make_survey(cpus, make_partition()), LoginNodeTools()), home)
    assert (site.partition, site.cpus_per_rank) == ("gpu", 16)
    site = load(write_site_file(make_survey(cpus, make_partition()), LoginNodeTools(), "cpu"), home)
    assert site.partition == "cpu"


@pytest.mark.parametrize(
    ("gpus", "capability"),
    [((("a100", 4),), "8.0"), ((("a100", 4), ("h100", 8)), "9.0"), ((("", 4),), None)],
)
def test_gpus_of_a_known_type_say_what_code_they_run(gpus, capability, home):
    # of several types, that of most nodes
    nodes = tuple(NodeKind(2 + i, 64, 512000, (kind,), "") for i, kind in enumerate(gpus))
    text = write_site_file(make_survey(make_partition(nodes=nodes)), LoginNodeTools())
    assert load(text, home).compute_capability == capability
    assert ("doctor prints" in text) == (capability is None)


def test_account_and_partition_are_ones_that_go_together(home):
    mine = tuple(Association(name, "", (), "", None) for name in ("teach", "ml"))
    closed = make_partition("closed", is_default=True, accounts=("staff",))
    partition = make_partition("open", accounts=("ml",))
    survey = make_survey(closed, partition, associations=mine, default_account="teach")
    site = load(write_site_file(survey, LoginNodeTools()), home)
    assert (site.partition, site.account) == ("open", "ml")


def test_time_limit_is_within_the_partitions_and_one_type_of_gpu_is_taken(home):
    kinds = (NodeKind(2, 64, 1, (("v100", 4),), ""), NodeKind(6, 64, 1, (("h100", 4),), ""))
    survey = make_survey(make_partition(nodes=kinds, max_minutes=12))
    site = load(write_site_file(survey, LoginNodeTools()), home)
    assert site.time_limit_minutes == {"default": 12}
    assert site.gpu_type == "h100"


@pytest.mark.parametrize(
    ("plugins", "launcher"),
    [
        (("none", "pmi2", "pmix"), ("srun", "pmix")),
        (("cray_shasta", "none", "pmi2"), ("srun", "cray_shasta")),
        (("none",), ("mpirun", "pmix")),
        ((), ("srun", "pmix")),
    ],
)
def test_launcher_fits_the_plugins_of_srun(plugins, launcher, home):
    site = load(write_site_file(make_survey(mpi_plugins=plugins), LoginNodeTools()), home)
    assert (site.launcher.name, site.launcher.mpi) == launcher


def test_cluster_of_which_nothing_is_known_has_a_file_of_questions(home):
    text = write_site_file(Survey("here", "25.05.1"), LoginNodeTools())
    site = load(text, home)
    assert (site.partition, site.gpu_request, site.device) == (None, "none", "cpu")
    assert text.count("# ASK THE ADMIN:") == 6


def test_modules_and_runtimes_stand_in_comments(home):
    text = write_site_file(make_survey(), LoginNodeTools(("cuda/12.6", "openmpi/5.0"), ("pyxis",)))
    assert '# modules = ["cuda/12.6"]' in text
    assert '# runtime = "pyxis"' in text
    assert load(text, home).modules == ()


def test_cluster_without_accounts_is_asked_for_none(bin_dir, home):
    put_clients(bin_dir, "24.11")
    config = "ClusterName = testbed\nAccountingStorageType = (null)\nMaxArraySize = 1001"
    put = f'[ "$*" = "show config" ] && echo "{config}" && exit\n'
    write_program(bin_dir, "scontrol", put + SCONTROL.format(folder=RECORDED / "24.11"))
    write_program(bin_dir, "sacctmgr", "exit 1")
    assert main(["site", "init"]) == 0
    text = (home / NAME).read_text(encoding="utf-8")
    assert "ASK THE ADMIN: which account" not in text
    assert "sacctmgr --" not in text
