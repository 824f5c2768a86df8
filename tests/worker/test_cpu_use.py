"""Where the time of a machine's CPUs goes, by counters that are made up."""

import pytest

from dlperf_slurm.contract.host_noise import OtherProcess
from dlperf_slurm.worker.cpu_use import (
    CpuCounters,
    Process,
    divide_time,
    find_launcher,
    list_run_pids,
    read_proc,
)

LAUNCHER, RANK, WORKER, SHELL, STRANGER, KTHREAD = 100, 101, 102, 50, 200, 20


def make_processes(**ticks):
    """Make a shell, its launcher and a foreign process, a rank with a worker, a kernel thread."""
    return {
        1: Process("init", 0, 5),
        2: Process("kthreadd", 0, 0),
        KTHREAD: Process("kworker", 2, ticks.get("kernel", 0)),
        SHELL: Process("bash", 1, 0),
        LAUNCHER: Process("mpirun", SHELL, 0),
        RANK: Process("python", LAUNCHER, ticks.get("rank", 0)),
        WORKER: Process("python", RANK, ticks.get("worker", 0)),
        STRANGER: Process("miner", SHELL, ticks.get("stranger", 0)),
    }


def make_reading(seconds=0.0, total=0, worked=0, stolen=0, processes=None):
    return CpuCounters(seconds, total, worked, stolen, processes or make_processes())


FIRST = make_reading()


@pytest.mark.parametrize(
    ("ticks", "counters", "shares"),
    [
        # 30 ticks are of processes that cannot be seen
        ({"rank": 300, "worker": 100, "stranger": 250, "kernel": 20}, (700, 50), (0.4, 0.28, 0.05)),
        # the run alone; what the kernel does is nobody's; steal alone
        ({"rank": 900}, (900, 0), (0.9, 0, 0)),
        ({"kernel": 600}, (600, 0), (0, 0, 0)),
        ({"rank": 500}, (500, 300), (0.5, 0, 0.3)),
    ],
)
def test_own_time_others_and_the_hypervisor_s_are_told_apart(ticks, counters, shares):
    use = divide_time(FIRST, make_reading(10.0, 1000, *counters, make_processes(**ticks)), LAUNCHER)
    assert (use.run_share, use.other_share, use.stolen_share) == shares
    other_processes = (OtherProcess("miner", 0.25),) if "stranger" in ticks else ()
    assert (use.other_processes, use.has_other_processes) == (
        other_processes,
        bool(other_processes),
    )
    assert use.is_quiet == (not other_processes and not shares[2])


def test_time_of_an_ended_worker_stays_the_run_s():
    first = make_reading(processes=make_processes(worker=70))
    processes = make_processes(rank=370)
    del processes[WORKER]
    use = divide_time(first, make_reading(10.0, 1000, 300, 0, processes), LAUNCHER)
    assert use.run_share == pytest.approx(0.3)
    # too short for the counters
    assert divide_time(FIRST, make_reading(0.1, 20, 20), LAUNCHER) is None


def test_own_processes_are_what_the_launcher_started_and_who_started_that():
    assert list_run_pids(make_processes(), LAUNCHER) == {SHELL, LAUNCHER, RANK, WORKER}


@pytest.mark.parametrize(("rank", "launcher"), [(RANK, LAUNCHER), (SHELL, SHELL), (999, 999)])
def test_launcher_of_a_rank_is_its_parent_but_for_init(rank, launcher):
    assert find_launcher(rank, make_processes()) == launcher


def test_names_with_blanks_and_parentheses_are_read(tmp_path):
    (tmp_path / "stat").write_text("cpu  10 2 3 80 5 1 1 8 0 0\n")
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "stat").write_text(f"7 (a (b) c) S 3 {'0 ' * 9}4 3 2 1 20 0\n")
    reading = read_proc(tmp_path)
    assert (reading.total, reading.worked, reading.stolen) == (110, 15, 8)
    assert reading.processes == {7: Process("a (b) c", 3, 10)}
