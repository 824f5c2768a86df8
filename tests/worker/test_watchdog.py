"""The worker under real MPI when a rank comes to stand still, or its time is up."""

import faulthandler
import math
import os
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy
import pytest
from support import attempts

from dlperf_slurm.contract.record import FAILED, OK, PARTIAL_STEP_SECONDS_FILE, TERMINATED
from dlperf_slurm.worker.clock import HostClock
from dlperf_slurm.worker.processes import TIME_LIMIT_SIGNAL
from dlperf_slurm.worker.progress import (
    END,
    LEAST_SECONDS,
    LONGEST_LOOK_SECONDS,
    MEASURED,
    START_SECONDS,
    WARMUP,
    Position,
    ProgressMonitor,
)
from dlperf_slurm.worker.stall_evidence import STATUS, get_evidence_path, get_rank_path
from dlperf_slurm.worker.watchdog import (
    ANSWER_SECONDS,
    CALL_FILE,
    CALLED,
    PREEMPTED_FILE,
    STALLS_DIR,
    TIME_LIMIT,
    WatchdogState,
)

pytestmark = pytest.mark.integration

STALL_SECONDS = 8.0
# of 3 in the warm-up and 20 measured ones
FAULT_STEP = 9
ENDED_STEPS = FAULT_STEP - 1 - 3
# starting two ranks, and their end by the launcher; on a busy machine
LAUNCH_SECONDS = 60.0
STANDING = f"step {ENDED_STEPS + 1} of 20 (measured), at "
# what stands still, and how the record says what rank 1 did
FAULTS = {
    # the launcher lets a stopped rank go on for a moment when it ends the ranks
    "stop": ("does not respond", "no response for "),
    "sleep": f"{STANDING}fall_asleep (session.py:",
    "hold": "in native code",
}
# what the record says of the ranks together
COMPARED = {
    "stop": "rank 1 is behind the other ranks",
    "sleep": "no rank is behind, but ranks are in different calls",
    "hold": "rank 1 is behind the other ranks",
}
NEEDS_GDB = pytest.mark.skipif(not shutil.which("gdb"), reason="needs gdb for native stacks")


@pytest.mark.parametrize(
    ("stall_seconds", "looks", "limit_seconds"),
    [
        # the first step is built
        (None, [((1, 0), 700.0)], START_SECONDS),
        (None, [((1, 0), 1.0), ((1, 300), 4.0), ((2, 40), 5.0)], LEAST_SECONDS),
        # the first step compiles, and another one may too
        (None, [((1, 0), 1.0), ((1, 1), 101.0), ((1, 50), 106.0)], 200.0),
        (None, [((1, 0), 1.0), ((1, 1), 11.0), ((1, 2), 21.0)], 200.0),
        # steps that ended between two looks share the time
        (None, [((1, 0), 1.0), ((1, 1), 11.0), ((1, 3), 31.0)], 200.0),
        # steps after a change of phase count from it
        (None, [((1, 0), 0.0), ((1, 20), 20.0), ((2, 2), 30.0)], 100.0),
        # the matrix has the last word
        (7.5, [((1, 1), 500.0)], 7.5),
        (0.0, [], math.inf),
    ],
)
def test_limit_follows_the_longest_step(stall_seconds, looks, limit_seconds):
    pace = ProgressMonitor(stall_seconds, 0.0)
    for place, now in looks:
        pace.record(place, now)
    assert pace.limit_seconds == limit_seconds


def test_quiet_begins_with_the_last_change():
    pace = ProgressMonitor(0.0, 0.0)
    for place, now in (((1, 0), 1.0), ((1, 1), 11.0), ((1, 1), 31.0)):
        pace.record(place, now)
    assert pace.find_idle_seconds(41.0) == 30.0
    assert pace.poll_seconds == LONGEST_LOOK_SECONDS


def test_position_has_the_times_of_the_measured_steps_that_have_ended():
    position = Position()
    position.enter(WARMUP, 5)
    position.step = 5
    assert position.read_seconds() == []
    clock = HostClock(11)
    position.enter(MEASURED, 10, clock)
    assert position.read_seconds() == []
    for index in range(4):
        clock.mark(index)
        position.step = index
    assert len(position.read_seconds()) == 3
    position.enter(END)
    position.keep([0.5, 0.25])
    assert position.read_seconds() == [0.5, 0.25]


@pytest.fixture
def watchdog(tmp_path):
    """Return the watchdog of rank 0 of two, on this host; rank 1 is on another one."""
    (tmp_path / STALLS_DIR).mkdir()
    world = SimpleNamespace(rank=0, size=2, hosts=(os.uname().nodename, "n2"))
    with get_rank_path(tmp_path, 0, "stacks").open("w") as stacks:
        yield WatchdogState(tmp_path, None, world, stacks)
    faulthandler.cancel_dump_traceback_later()


def test_rank_that_is_called_leaves_the_cause_of_the_one_that_called(tmp_path, watchdog):
    call = tmp_path / STALLS_DIR / CALL_FILE
    call.write_text(TIME_LIMIT)
    # this process is to go on
    watchdog.is_over = True
    watchdog._end(CALLED)
    assert call.read_text() == TIME_LIMIT


def test_rank_of_a_host_without_an_answer_may_still_report(tmp_path, watchdog):
    # evidence of this host is there: no collector starts
    get_evidence_path(tmp_path, os.uname().nodename).write_text("{}")
    threading.Timer(0.5, get_rank_path(tmp_path, 1, STATUS).touch).start()
    assert watchdog._collect_evidence({1}) == set()


@pytest.fixture(scope="module")
def stalled(tmp_path_factory, code_dir, mpi):
    """By fault, an attempt whose rank 1 stands still in its ninth step; rank 0 waits for it."""
    folder = tmp_path_factory.mktemp("attempts")
    changes = {"stall_seconds": STALL_SECONDS, "measured_steps": 20}
    attempt = {fault: attempts.Attempt(folder / fault, code_dir, **changes) for fault in FAULTS}
    with ThreadPoolExecutor(len(FAULTS)) as pool:
        run = {
            fault: pool.submit(attempt[fault].launch, fault=fault, fault_step=FAULT_STEP)
            for fault in FAULTS
        }
    assert all(one.result().exit_code != 0 for one in run.values())
    return {fault: (attempt[fault], attempt[fault].conclude()) for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS)
class TestRankThatStandsStill:
    def test_ends_all_ranks_in_bounded_time(self, stalled, fault):
        attempt, _ = stalled[fault]
        assert attempt.seconds < STALL_SECONDS + 2 * ANSWER_SECONDS + LAUNCH_SECONDS
        attempts.await_ends(attempt)

    def test_fails_the_record_with_what_every_rank_did(self, stalled, fault):
        _, record = stalled[fault]
        assert record.status == FAILED
        assert re.match("stalled: [^\n]*$", record.reason)
        words = {failure.rank: failure.message for failure in record.failures}
        assert words[0].startswith(f"{STANDING}come_to (session.py:")
        assert words[1].startswith(FAULTS[fault])
        assert words[0] in record.reason
        assert words[1] in record.reason
        assert f" s; {COMPARED[fault]}: rank" in record.reason
        hosts = {failure.host for failure in record.failures if failure.rank >= 0}
        assert hosts == {os.uname().nodename}
        # what is stopped comes first
        if fault == "stop":
            assert record.reason.index("rank 1 on ") < record.reason.index("rank 0 on ")

    def test_leaves_the_stacks_of_the_ranks_that_can_write(self, stalled, fault):
        """What is stopped may go on for a moment when the launcher ends it."""
        attempt, record = stalled[fault]
        stacks = {failure.rank: failure.traceback for failure in record.failures}
        assert "in come_to" in stacks[0]
        assert "in commit_fault" in stacks[1] or fault == "stop"
        for rank in (0, 1):
            told = (attempt.path / STALLS_DIR / f"rank-{rank}.stacks").read_text().strip()
            assert stacks[rank].startswith(told)

    @NEEDS_GDB
    def test_has_the_native_stack_of_each_rank(self, stalled, fault):
        """Examine also a rank that holds the GIL, but none that is stopped: it would go on."""
        _, record = stalled[fault]
        native = {one.rank: one.traceback.partition("Native stack:")[2] for one in record.failures}
        # Python 3.10 and older sleep in select
        assert re.search("^#0 .*(sleep|select)", native[0], re.M)
        function = {"stop": "^$", "sleep": "#0 .*(sleep|select)", "hold": "#[0-3] .*mutex_lock"}[
            fault
        ]
        assert re.search(function, native[1])

    def test_keeps_the_measured_steps_that_had_ended(self, stalled, fault):
        attempt, record = stalled[fault]
        assert record.partial_steps == ENDED_STEPS
        seconds = numpy.load(str(attempt.path / PARTIAL_STEP_SECONDS_FILE))
        assert seconds.shape == (2, ENDED_STEPS)
        assert numpy.isfinite(seconds[0]).all()
        can_tell = {"stop": (True, False), "sleep": (True,), "hold": (False,)}[fault]
        assert numpy.isfinite(seconds[1]).all() in can_tell


@pytest.fixture
def make_attempt(tmp_path, code_dir, mpi):
    return lambda **changes: attempts.Attempt(tmp_path / "a1", code_dir, **changes)


def test_silence_before_the_first_step_is_a_stall_of_the_start(make_attempt):
    attempt = make_attempt(stall_seconds=STALL_SECONDS)
    record = attempt.launch(fault="sleep", fault_step=0).conclude()
    assert ": start, at fall_asleep" in record.reason
    assert record.partial_steps == 0
    assert not (attempt.path / PARTIAL_STEP_SECONDS_FILE).exists()


@NEEDS_GDB
def test_ranks_that_all_wait_in_one_call_are_told_from_one_that_is_behind(make_attempt):
    attempt = make_attempt(stall_seconds=STALL_SECONDS).launch(fault="wait", fault_rank="all")
    reason = attempt.conclude().reason
    assert re.search(
        r" s; no rank is behind, all wait in the same call \(P?MPI_\w+\): ranks 0-1: ", reason
    )


@pytest.mark.parametrize("stall_seconds", [0.0, STALL_SECONDS])
def test_good_run_leaves_nothing_of_the_watch(make_attempt, stall_seconds):
    attempt = make_attempt(stall_seconds=stall_seconds, measured_steps=1)
    attempt.launch(warmup_steps=3, warmup_seconds=0.1, step_seconds=1)
    assert attempt.exit_code == 0, attempt.stderr
    assert not (attempt.path / STALLS_DIR).exists()
    record = attempt.read_record()
    assert (record.status, record.partial_steps) == (OK, 0)


def test_ranks_that_are_suspended_for_a_while_are_measured(make_attempt):
    attempt = make_attempt(stall_seconds=24.0, measured_steps=60)
    process = attempt.start(step_seconds=0.1)
    attempts.await_starts(attempt)
    for pid in attempt.list_pids():
        os.kill(pid, signal.SIGSTOP)
    # longer than the watch waits for the signal, far shorter than the stall limit
    time.sleep(2 * ProgressMonitor(24.0, 0.0).poll_seconds)
    for pid in attempt.list_pids():
        os.kill(pid, signal.SIGCONT)
    assert attempt.finish(process).conclude().status == OK, attempt.stderr


@pytest.mark.parametrize(
    ("stall_seconds", "is_preempted", "reason"),
    [
        (0.0, False, "time limit: .*: rank"),
        (None, True, "preempted: "),
    ],
)
def test_signal_keeps_the_steps_so_far_and_is_the_reason(
    make_attempt, stall_seconds, is_preempted, reason
):
    attempt = make_attempt(stall_seconds=stall_seconds, measured_steps=1000)
    process = attempt.start(step_seconds=0.1)
    attempts.await_measured_steps(attempt)
    if is_preempted:
        (attempt.path / PREEMPTED_FILE).touch()
    process.send_signal(TIME_LIMIT_SIGNAL)
    record = attempt.finish(process).conclude()
    assert record.status == FAILED
    assert re.match(reason, record.reason)
    assert (record.failures[0].error == TERMINATED) is is_preempted
    assert 0 < record.partial_steps < 1000
    seconds = numpy.load(str(attempt.path / PARTIAL_STEP_SECONDS_FILE))
    assert numpy.isfinite(seconds[:, : record.partial_steps]).all()
    assert seconds[:, : record.partial_steps].min() >= 0.1
