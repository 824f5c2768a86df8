"""A real matrix on a real Slurm: PyTorch over MPI across nodes, from submit to the tables."""

import json
import re
from collections import Counter

import pytest
from support.slurm_runs import (
    CHECKOUT,
    NO_PEAKS,
    SITE,
    SMALL_RESNET,
    assert_array_tasks_in_accounting,
    read_records,
    write_matrix,
    write_wrapper,
)
from support.tool import run_tool, set_values

from dlperf_slurm.jobs.journal import TRACKED, read_journal
from dlperf_slurm.jobs.run_directory import find_run

TOPOLOGIES = ("1n1g", "2n1g")
REPEATS = 3
POLL_SECONDS = 2
CLIENTS = ("sbatch", "squeue", "sacct", "scontrol", "scancel")


@pytest.fixture(scope="module")
def submitted(cluster, tmp_path_factory):
    """Run `submit --wait`, with every call of a client command logged."""
    folder = tmp_path_factory.mktemp("matrix")
    for name in CLIENTS:
        log = f'echo "{name} $(date +%s.%N)" >> {folder}/calls'
        path = write_wrapper(folder / "bin", name, f'{log}\nexec $real "$@"')
    matrix = write_matrix(folder, TOPOLOGIES, REPEATS, SMALL_RESNET)
    polls = [f"tracking.poll_seconds={POLL_SECONDS}", "tracking.slowest_poll_seconds=4"]
    words = ["submit", str(matrix), "--site", str(SITE), "--results", str(folder / "results")]
    words += ["--wait", *set_values(*polls, NO_PEAKS)]
    done = run_tool(words, CHECKOUT, {"PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    return done, find_run(None, folder / "results"), read_calls(folder / "calls")


def read_calls(path):
    """Return (client, seconds) of each call."""
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [(name, float(seconds)) for name, seconds in lines]


def test_tables_have_the_medians_of_all_repeats(submitted):
    _, run, _ = submitted
    again = run_tool(["report", str(run.path)], CHECKOUT)
    assert again.returncode == 0
    table = (run.path / "report" / "report.md").read_text(encoding="utf-8")
    for topology in TOPOLOGIES:
        assert re.search(rf"^\| pytorch \| {topology} \| \d", table, re.M), table


def test_array_task_leaves_two_files_its_claim_and_one_marker(submitted):
    """Allow its output files too, if it printed anything: at most four files in all."""
    _, run, _ = submitted
    tasks = run.read_all_tasks()
    for task in tasks:
        folder = run.path / task.attempt_dir
        left = {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
        assert left - {"s0/out", "s0/err"} == {"claim", "s0", "s0/details.npz", "s0/record.json"}
    markers = {path.name for path in (run.path / "markers").iterdir()}
    assert markers == {f"{task.marker}.s0.finished" for task in tasks}
    assert not list((run.path / "scripts").glob("*.log"))


def test_ranks_of_torch_over_mpi_stand_on_the_nodes_of_the_topology(submitted):
    _, run, _ = submitted
    for record in read_records(run):
        hosts = Counter(rank.host for rank in record.ranks)
        assert len(hosts) == record.case.nodes
        assert set(hosts.values()) == {record.case.devices_per_node}
        assert record.versions["torch"]
        assert "MPI" in record.versions["mpi"]
        assert record.job["SLURM_ARRAY_JOB_ID"].isdigit()


def test_one_sbatch_for_each_group(submitted):
    _, run, calls = submitted
    assert len(run.list_group_ids()) == len(TOPOLOGIES)
    assert [name for name, _ in calls].count("sbatch") == len(TOPOLOGIES)
    assert_array_tasks_in_accounting(run, len(TOPOLOGIES) * REPEATS)


def test_one_squeue_a_poll_at_most(submitted):
    _, _, calls = submitted
    times = [seconds for name, seconds in calls if name == "squeue"]
    gaps = [later - earlier for earlier, later in zip(times, times[1:])]
    assert len(times) >= 3
    assert min(gaps) >= 0.9 * POLL_SECONDS


def test_journal_counts_the_calls_that_were_made(submitted):
    done, run, calls = submitted
    made = Counter(name for name, _ in calls)
    (tracked,) = (event for event in read_journal(run.path) if event.event == TRACKED)
    assert json.loads(tracked.detail) == {"squeue": made["squeue"], "sacct": made["sacct"]}
    assert f"{len(TOPOLOGIES)} sbatch, and while waiting {made['squeue']} squeue" in done.stdout


def test_array_tasks_did_not_share_the_machine(submitted):
    _, run, _ = submitted
    spans = sorted((record.started_at, record.ended_at) for record in read_records(run))
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))
