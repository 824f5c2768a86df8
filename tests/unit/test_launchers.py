"""Launchers: the command line that starts the ranks."""

import pytest

from dlperf_slurm.config.job_settings import LauncherOptions
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.quoting import quote_words
from dlperf_slurm.launchers import LAUNCHERS, RankLayout

PROGRAM = ["python", "-m", "worker"]
TOPOLOGY = parse_topology("2n8g")


def make_ranks(topology="2n8g", **changes) -> RankLayout:
    values = {"cpus_per_rank": 4, "mpi": "pmix", "flags": (), **changes}
    return RankLayout(parse_topology(topology), **values)


def make_command(launcher: str, ranks: RankLayout, program: list[str]) -> list[str]:
    return LAUNCHERS[launcher].make_command(ranks, program)


@pytest.mark.parametrize(
    ("launcher", "changes", "words"),
    [
        (
            "srun",
            {},
            "srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=4 --mpi=pmix "
            "--kill-on-bad-exit=1",
        ),
        # flags of a site come last, so that they win; no MPI, and no tasks of a node
        (
            "srun",
            {"mpi": "none", "by_node": False, "flags": ("--kill-on-bad-exit=0",)},
            "srun --nodes=2 --ntasks=16 --cpus-per-task=4 --kill-on-bad-exit=1 "
            "--kill-on-bad-exit=0",
        ),
        ("mpirun", {}, "mpirun -np 16 --map-by ppr:8:node:OVERSUBSCRIBE --bind-to none"),
        # flags of a site replace the placement
        ("mpirun", {"flags": ("--map-by", "socket")}, "mpirun -np 16 --map-by socket"),
        (
            "command",
            {"command": ["ibrun", "-n", "16"], "flags": ["task_affinity"]},
            "ibrun -n 16 task_affinity",
        ),
    ],
)
def test_launcher_starts_the_ranks_of_the_topology(launcher, changes, words):
    assert make_command(launcher, make_ranks(**changes), PROGRAM) == [*words.split(), *PROGRAM]


@pytest.mark.parametrize(
    ("flags", "placements"),
    [
        ((), ["--distribution=block:block"]),
        (("--distribution=cyclic",), ["--distribution=cyclic"]),
        (("-m", "cyclic"), ["-m"]),
        (("--mpi=none",), ["--distribution=block:block"]),
    ],
)
def test_srun_places_neighbours_on_gpus_beside_each_other_unless_the_site_does(flags, placements):
    words = make_command("srun", make_ranks(flags=flags, has_gpus=True), PROGRAM)
    assert [word for word in words[:-3] if word.startswith(("--dist", "-m"))] == placements


@pytest.mark.parametrize("name", ["srun", "mpirun"])
def test_words_with_spaces_stay_single_words(name):
    words = make_command(name, make_ranks(flags=("--a b",)), ["a b", "c'd"])
    assert words[-3:] == ["--a b", "a b", "c'd"]


def test_site_offers_the_launchers_that_are_there():
    assert LauncherOptions.model_json_schema()["properties"]["name"]["enum"] == sorted(LAUNCHERS)
    assert {"mpirun", "srun"} <= set(LAUNCHERS)


def test_slurm_starts_each_rank_but_those_of_torchrun():
    counts = {name: LAUNCHERS[name].count_tasks_per_node(TOPOLOGY) for name in LAUNCHERS}
    assert counts == {"command": 8, "mpirun": 8, "srun": 8, "torchrun": 1}


@pytest.mark.parametrize("name", sorted(LAUNCHERS))
def test_wrapper_stands_before_the_program(name):
    ranks = make_ranks(wrapper=["./select_gpu", "a b"], command=["ibrun"])
    words = make_command(name, ranks, PROGRAM)
    assert words[-len(PROGRAM) :] == PROGRAM
    assert words.index("a b") == words.index("./select_gpu") + 1


def test_command_that_is_missing_is_asked_for():
    with pytest.raises(InputError, match=r"^launcher\.command: is empty; .*'ibrun -n "):
        make_command("command", make_ranks(), PROGRAM)


def test_torchrun_is_one_task_of_a_node_with_the_cores_of_its_ranks():
    words = make_command("torchrun", make_ranks(wrapper=["inside"]), PROGRAM)
    assert words == [
        *("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=32"),
        *("--kill-on-bad-exit=1", "inside", "bash", "-c"),
        'exec torchrun --rdzv-conf=is_host=$((SLURM_NODEID == 0)) "$@"',
        *("torchrun", "--rdzv-backend=c10d", "--rdzv-id=${SLURM_JOB_ID}"),
        "--rdzv-endpoint=${SLURMD_NODENAME}:${DLPERF_SLURM_PORT}",
        *("--nnodes=2", "--nproc-per-node=8", "--no-python"),
        *PROGRAM,
    ]
    assert quote_words(words[12:14]) == '--rdzv-id="${SLURM_JOB_ID-}" ' + (
        '--rdzv-endpoint="${SLURMD_NODENAME-}":"${DLPERF_SLURM_PORT-}"'
    )


def test_torchrun_on_one_node_needs_no_address():
    words = make_command("torchrun", make_ranks("1n4g"), PROGRAM)
    assert "--standalone" in words
    assert not [word for word in words if word.startswith("--rdzv")]
