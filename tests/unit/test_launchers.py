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


def test_srun_says_the_whole_shape_again():
    assert make_command("srun", make_ranks(), PROGRAM) == [
        "srun",
        "--nodes=2",
        "--ntasks=16",
        "--ntasks-per-node=8",
        "--cpus-per-task=4",
        "--mpi=pmix",
        "--kill-on-bad-exit=1",
        *PROGRAM,
    ]


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


def test_srun_flags_come_after_ours_so_that_they_win():
    words = make_command("srun", make_ranks(flags=("--kill-on-bad-exit=0",)), PROGRAM)
    assert words[-5:] == ["--kill-on-bad-exit=1", "--kill-on-bad-exit=0", *PROGRAM]


def test_mpirun_places_the_ranks_of_the_topology():
    assert make_command("mpirun", make_ranks(), PROGRAM) == [
        *("mpirun", "-np", "16"),
        *("--map-by", "ppr:8:node:OVERSUBSCRIBE", "--bind-to", "none"),
        *PROGRAM,
    ]


def test_mpirun_flags_replace_the_placement():
    words = make_command("mpirun", make_ranks(flags=("--map-by", "socket")), PROGRAM)
    assert words == ["mpirun", "-np", "16", "--map-by", "socket", *PROGRAM]


@pytest.mark.parametrize("name", ["srun", "mpirun"])
def test_words_with_spaces_stay_single_words(name):
    words = make_command(name, make_ranks(flags=("--a b",)), ["a b", "c'd"])
    assert words[-3:] == ["--a b", "a b", "c'd"]


def test_site_offers_the_launchers_that_are_there():
    schema = LauncherOptions.model_json_schema()
    assert schema["properties"]["name"]["enum"] == sorted(LAUNCHERS)
    assert {"mpirun", "srun"} <= set(LAUNCHERS)


def test_slurm_starts_each_rank_but_those_of_torchrun():
    counts = {name: LAUNCHERS[name].count_tasks_per_node(TOPOLOGY) for name in LAUNCHERS}
    assert counts == {"command": 8, "mpirun": 8, "srun": 8, "torchrun": 1}


def test_srun_leaves_out_an_mpi_that_is_none_and_the_tasks_of_a_node_where_a_site_refuses_them():
    words = make_command("srun", make_ranks(mpi="none", by_node=False), PROGRAM)
    assert not [word for word in words if word.startswith("--mpi")]
    assert words[1:4] == ["--nodes=2", "--ntasks=16", "--cpus-per-task=4"]


@pytest.mark.parametrize("name", sorted(LAUNCHERS))
def test_wrapper_stands_before_the_program(name):
    ranks = make_ranks(wrapper=["./select_gpu", "a b"], command=["ibrun"])
    words = make_command(name, ranks, PROGRAM)
    assert words[-len(PROGRAM) :] == PROGRAM
    assert words.index("a b") == words.index("./select_gpu") + 1


def test_command_of_a_site_starts_the_program_with_its_flags():
    ranks = make_ranks(command=["ibrun", "-n", "16"], flags=["task_affinity"])
    assert make_command("command", ranks, PROGRAM) == [
        *("ibrun", "-n", "16", "task_affinity"),
        *PROGRAM,
    ]


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
