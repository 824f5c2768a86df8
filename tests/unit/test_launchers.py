"""Launchers: the command line that starts the ranks."""

import pytest

from dlperf_slurm.config.job_settings import LauncherOptions
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.quoting import quote_words
from dlperf_slurm.launchers import LAUNCHERS, RankLayout

PROGRAM = ["python", "-m", "worker"]


def make_command(launcher: str, topology: str = "2n8g", **changes) -> list[str]:
    values = {"cpus_per_rank": 4, "mpi": "pmix", "flags": (), **changes}
    return LAUNCHERS[launcher].make_command(RankLayout(parse_topology(topology), **values), PROGRAM)


# the golden files have the plain command lines
@pytest.mark.parametrize(
    ("launcher", "changes", "words"),
    [
        # flags of a site come last, so that they win; no MPI, and no tasks of a node
        (
            "srun",
            {"mpi": "none", "by_node": False, "flags": ("--kill-on-bad-exit=0",)},
            "srun --nodes=2 --ntasks=16 --cpus-per-task=4 --kill-on-bad-exit=1 "
            "--kill-on-bad-exit=0 ./select_gpu",
        ),
        # flags of a site replace the placement
        (
            *("mpirun", {"flags": ("--map-by", "socket")}),
            "mpirun -np 16 --map-by socket ./select_gpu",
        ),
        (
            "command",
            {"command": ["ibrun", "-n", "16"], "flags": ["task_affinity"]},
            "ibrun -n 16 task_affinity ./select_gpu",
        ),
    ],
)
def test_launcher_starts_the_ranks_of_the_topology(launcher, changes, words):
    made = make_command(launcher, wrapper=["./select_gpu", "a b"], **changes)
    assert made == [*words.split(), "a b", *PROGRAM]


@pytest.mark.parametrize(
    ("flags", "placements"),
    [
        ((), ["--distribution=block:block"]),
        (("--distribution=cyclic",), ["--distribution=cyclic"]),
        (("-m", "cyclic"), ["-m"]),
    ],
)
def test_srun_places_neighbours_on_gpus_beside_each_other_unless_the_site_does(flags, placements):
    words = make_command("srun", flags=flags, has_gpus=True)
    assert [word for word in words[:-3] if word.startswith(("--dist", "-m"))] == placements


def test_site_offers_the_launchers_that_are_there_and_slurm_starts_each_rank_but_torchruns():
    assert LauncherOptions.model_json_schema()["properties"]["name"]["enum"] == sorted(LAUNCHERS)
    topology = parse_topology("2n8g")
    counts = {name: LAUNCHERS[name].count_tasks_per_node(topology) for name in LAUNCHERS}
    assert counts == {"command": 8, "mpirun": 8, "srun": 8, "torchrun": 1}


def test_command_that_is_missing_is_asked_for():
    with pytest.raises(InputError, match=r"^launcher\.command: is empty; .*'ibrun -n "):
        make_command("command")


def test_torchrun_is_one_task_of_a_node_with_the_cores_of_its_ranks():
    words = make_command("torchrun", wrapper=["inside"])
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
    # one node needs no address
    words = make_command("torchrun", "1n4g")
    assert "--standalone" in words
    assert not [word for word in words if word.startswith("--rdzv")]
