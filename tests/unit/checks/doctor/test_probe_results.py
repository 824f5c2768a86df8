"""What ranks of a probe answer, or do not, becomes a line with what to mend."""

import json

import pytest
from builders import make_matrix_case, make_site
from support.problems import assert_problem

from dlperf_slurm.checks.doctor.probe import JobEnd, Probe, choose_probes, shrink
from dlperf_slurm.checks.doctor.probe_results import evaluate_probe
from dlperf_slurm.contract.nodes import NodeReport, write_node_report
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.jobs.plan import resolve
from dlperf_slurm.matrix.expand import Expansion

ENDED = JobEnd("COMPLETED", "None", "n[1-2]")
VENV = "/venvs/pytorch"
NO_MPI4PY = "ModuleNotFoundError: No module named 'mpi4py'"
SEGFAULT = "task 0: Segmentation fault"


def make_probe(topology="2n1g", **site):
    environments = {"pytorch": {"venv": VENV}}
    return Probe(make_matrix_case(topology), make_site(environments=environments, **site))


def make_answer(rank=0, host="n1", **changes):
    return {
        "host": host,
        "cores": [0, 1],
        "rank": rank,
        "world_size": 2,
        "mpi": "Open MPI v5.0.8",
        "version": "2.9.1",
        "is_done": True,
        **changes,
    }


def judge_answers(folder, answers, probe=None, end=ENDED, error="", has_started=True):
    start = folder / "s0"
    if has_started:
        start.mkdir(exist_ok=True)
        (start / "err").write_text(error, encoding="utf-8")
        for number, answer in enumerate(answers):
            path = start / f"probe-{answer['host']}-{number}.json"
            path.write_text(json.dumps(answer), encoding="utf-8")
    return evaluate_probe(probe or make_probe(), end, start, folder)


def list_faults(*arguments, **options):
    findings = judge_answers(*arguments, **options)
    return [str(finding) for finding in findings if not finding.is_ok]


def test_ranks_of_one_world_are_sound(home):
    folder, ranks = judge_answers(home, [make_answer(0), make_answer(1, "n2")])
    assert_problem(folder, key="ok        run directory: pytorch on n1, n2")
    says = ("2 ranks", "Open MPI v5.0.8", "2.9.1", "2 cores")
    assert_problem(ranks, key="ok        ranks: pytorch on n1, n2", says=says)


def test_processes_that_are_a_world_each_are_told_from_ranks(home):
    (line,) = list_faults(home, [make_answer(0, world_size=1), make_answer(0, "n2", world_size=1)])
    says = (
        "size 1 instead of 2",
        "set launcher.mpi",
        "launcher.name = 'srun', launcher.mpi = 'pmix'",
    )
    assert_problem(line, key="fault     MPI: pytorch on n1, n2", says=says)


@pytest.mark.parametrize(
    ("answers", "subject", "nodes", "says"),
    [
        (
            [make_answer(join_error=NO_MPI4PY, rank=None)] * 2,
            *("environment", "n1"),
            (NO_MPI4PY, f"`{VENV}/bin/python -m pip install`", "`dlperf-slurm env create pytorch`"),
        ),
        (
            [make_answer(join_error="PlacementError: 1 rank(s)", rank=None)] * 2,
            *("launcher", "n1", ("PlacementError: 1 rank(s)", "launcher.name")),
        ),
        (
            [make_answer(n, f"n{n}", import_error="ImportError: libcudart.so.12") for n in (0, 1)],
            *("environment", "n0, n1", ("ImportError: libcudart.so.12", "`")),
        ),
        (
            [make_answer(n, f"n{n}", is_done=False) for n in (0, 1)],
            *("environment", "n0, n1", ("imported pytorch", SEGFAULT)),
        ),
        (
            [{"host": name, "cores": [0]} for name in ("n1", "n2")],
            *("MPI", "n1, n2", ("not start", SEGFAULT)),
        ),
        ([make_answer(0)], "launcher", "n1", ("2 ranks", "1 answered")),
        ([make_answer(0), make_answer(1)], "launcher", "n1", ("2 ranks", "2 nodes")),
    ],
)
def test_fault_of_ranks_is_named_with_where_and_how_to_mend_it(answers, subject, nodes, says, home):
    error = f"srun: error: n1: {SEGFAULT}\nsrun: Terminating StepId=1.0\n"
    (found, *_) = list_faults(home, answers, error=error)
    assert_problem(found, key=f"fault     {subject}: pytorch on {nodes}", says=says)


def test_cores_that_ranks_share_are_divided(home):
    shared = [make_answer(0), make_answer(1)]
    (line,) = list_faults(home, shared, make_probe("1n2g", cpus_per_rank=2))
    assert_problem(line, says=("2 ranks on n1", "2 cores", "2", "set cpus_per_rank = 1"))


def test_cores_of_each_are_enough_where_ranks_are_bound(home):
    bound = [make_answer(0, cores=[0, 1]), make_answer(1, cores=[2, 3])]
    assert list_faults(home, bound, make_probe("1n2g", cpus_per_rank=2)) == []


@pytest.mark.parametrize(("gpus", "is_fault"), [(0, True), (1, False), (2, True), (4, False)])
def test_each_rank_of_a_node_needs_a_gpu_of_those_that_it_sees(gpus, is_fault, home):
    answers = [make_answer(rank, gpus=gpus, uuid=f"GPU-{rank}") for rank in range(4)]
    answers = [{**answer, "world_size": 4} for answer in answers]
    faults = list_faults(home, answers, make_probe("1n4g", device="cuda"))
    # cores aside
    assert any("devices: " in line and "gpu_request" in line for line in faults) == is_fault


def test_ranks_with_one_gpu_between_them_are_named(home):
    answers = [make_answer(rank, gpus=1, uuid="GPU-0") for rank in range(2)]
    (line,) = list_faults(home, answers, make_probe("1n2g", device="cuda", cpus_per_rank=1))
    assert_problem(line.partition("fault     ")[2], says=("ranks", "GPU"))


def list_build_faults(folder, *, cuda=13000, managed=True, gpus=("8.0",), **site):
    """List the faults of one rank on GPUs of these capabilities, with a driver for this CUDA."""
    answer = make_answer(world_size=1, gpus=1, cuda=cuda, capabilities=list(gpus))
    environments = {} if managed else {"pytorch": {"venv": VENV}}
    whole = make_site(device="cuda", cpus_per_rank=1, environments=environments, **site)
    return list_faults(folder, [answer], Probe(make_matrix_case("1n1g"), whole))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"gpus": ("7.0",)}, ("torch 2.13.0", "CUDA 13.0", "7.0", "[environments.pytorch]")),
        ({"cuda": 12040}, ("CUDA 13.0", "driver", "CUDA 12.4", "[environments.pytorch]")),
        (
            {"gpus": ("8.0", "9.0"), "compute_capability": "8.6"},
            ("8.0 and 9.0", "8.6", "set compute_capability = '9.0'"),
        ),
    ],
)
def test_build_that_does_not_fit_the_gpus_or_driver_is_named(changes, says, home):
    (line,) = list_build_faults(home, **changes)
    assert line.startswith("fault ")
    assert_problem(line, says=says)


def test_nothing_is_known_against_an_own_build_on_the_gpus_that_are_there(home):
    assert list_build_faults(home, cuda=12040, managed=False, gpus=("7.0",)) == []


def test_gpus_that_fit_are_told(home):
    answers = [make_answer(world_size=1, gpus=4, cuda=13000, capabilities=["9.0"])]
    site = make_site(device="cuda", cpus_per_rank=1, compute_capability="9.0")
    findings = judge_answers(home, answers, Probe(make_matrix_case("1n1g"), site))
    assert str(findings[-1]).endswith("sees 2 cores and 4 GPUs of compute capability 9.0")


@pytest.mark.parametrize(
    ("end", "key", "says"),
    [
        (
            JobEnd("FAILED", "JobLaunchFailure", "n1"),
            *("fault     run directory", ("n1", "(FAILED JobLaunchFailure)", "name a folder")),
        ),
        (JobEnd("PENDING", "Priority", ""), "undecided probe job", ("--max-wait",)),
        (JobEnd("", refusal="sbatch failed: no"), "fault     probe job", ("sbatch failed: no",)),
    ],
)
def test_probe_that_did_not_start_says_why(end, key, says, home):
    (line,) = list_faults(home, [], end=end, has_started=False)
    assert_problem(line, key=f"{key}: pytorch", says=says)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("srun: error: Couldn't find the specified plugin name for mpi/x\n", "launcher: pytorch: "),
        ("the site's setup line failed with exit code 1: false\n", "job script: pytorch: the si"),
        ("-----\nprterun: not as root\nmore of it\n-----\n", "launcher: pytorch: prterun: not"),
        ("-----\nmodule: none such\nmore of it\n-----\n", "job script: pytorch: module: none"),
    ],
)
def test_launcher_that_starts_nothing_is_quoted(error, line, home):
    (found,) = list_faults(home, [], error=error)
    assert found.startswith(f"fault     {line}")


def test_node_that_fails_its_check_is_named_and_not_the_launcher(home):
    (home / "s0").mkdir()
    write_node_report(home / "s0", NodeReport("n2", "n2", 0.0, 0.0, ("link is down",)))
    (line,) = list_faults(home, [], error="srun: error: n2: task 0: Exited with exit code 1\n")
    assert_problem(line, key="fault     node: pytorch", says=("n2", "link is down", "[node]"))


@pytest.mark.parametrize(
    ("topology", "probed"), [("4n8g", "2n1g"), ("1n8g", "1n2g"), ("1n1g", "1n1g"), ("2n1g", "2n1g")]
)
def test_two_ranks_are_probed_over_nodes_where_cases_are(topology, probed):
    assert str(shrink(parse_topology(topology))) == probed


def test_largest_topology_is_probed_with_its_own_settings():
    override = [
        {"when": {"nodes": ">1"}, "partition": "wide", "time_limit_minutes": {"default": 3}},
        {"when": {"nodes": 1}, "partition": "shared"},
    ]
    site = make_site(override=override)
    cases = tuple(make_matrix_case(topology) for topology in ("1n1g", "4n2g", "1n8g"))
    (probe,) = choose_probes(resolve(Expansion(cases, ()), site, 1001), site)
    assert str(probe.case.topology) == "2n1g"
    assert probe.site.partition == "wide"
    assert probe.group.time_limit_minutes == 3


@pytest.mark.parametrize(
    ("changes", "subject", "says"),
    [
        ({"limit_nofile": "1024"}, "open files", ("1024", "4096", "LimitNOFILE")),
        (
            {"limit_memlock": "8388608 of unlimited", "infiniband": "mlx5_0/1 ACTIVE"},
            "locked memory",
            ("8388608", "LimitMEMLOCK"),
        ),
        ({"shm_mib": 64}, "shared memory", ("64 MiB", "--ipc=host")),
        ({"limit_memlock": "549755813888", "infiniband": "mlx5_0/1 ACTIVE"}, "", ()),
        ({"network": "eth0 mtu 1500"}, "network", ("n1 has eth0 mtu 1500", "n2 has eth0 mtu 9000")),
    ],
)
def test_limits_of_ranks_that_are_too_low_are_named_with_the_remedy(home, changes, subject, says):
    limits = {"limit_nofile": "65536", "limit_memlock": "unlimited", "network": "eth0 mtu 9000"}
    shm_mib = changes.pop("shm_mib", 8192)
    first = make_answer(0, limits={**limits, **changes}, shm_mib=shm_mib)
    lines = list_faults(home, [first, make_answer(1, "n2", limits=limits, shm_mib=8192)])
    if "infiniband" in changes:
        lines = [line for line in lines if "undecided" not in line]
    assert len(lines) == bool(subject)
    for line in lines:
        assert subject in line
        assert_problem(line, says=says)
