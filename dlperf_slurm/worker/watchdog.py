"""A rank that stalls, or whose job is about to end -> a file with its status, then its exit.

The watchdog is a thread. If native code holds the GIL, so that no Python thread can run, a timer of
faulthandler, which does not need the GIL, writes the stacks and ends the rank.
"""

import faulthandler
import math
import os
import signal
import socket
import sys
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Iterable, Iterator, Optional, Set, Tuple, cast

from dlperf_slurm.contract.json_files import write_sidecar
from dlperf_slurm.worker.processes import TIME_LIMIT_SIGNAL, allow_tracing
from dlperf_slurm.worker.progress import Position, ProgressMonitor
from dlperf_slurm.worker.ranks import World
from dlperf_slurm.worker.stall_evidence import (
    EVIDENCE_SECONDS,
    SILENT,
    STACKS,
    STACKS_SIGNAL,
    STALLS_DIR,
    STATUS,
    dump_flight_recorder,
    get_evidence_path,
    get_rank_path,
    is_filled,
    start_collector,
)

# a rank that writes this file asks all ranks to write their status and end
CALL_FILE = "call"
# the job script writes it if Slurm preempts the job, before it passes on the signal
PREEMPTED_FILE = "preempted"

STALLED = "stalled"
TIME_LIMIT = "time limit"
PREEMPTED = "preempted"
CALLED = "called"

# for the ranks' writing of a few files, in addition to the polls until they see the call
ANSWER_SECONDS = 5.0
LOOKS_TO_ANSWER = 3
POLL_SECONDS = 0.2
EXIT_CODE = 1


@dataclass(frozen=True)
class RankStatus:
    """Where a rank was when its watchdog ended it, and why (see `cause`).

    `cause` is STALLED, TIME_LIMIT, PREEMPTED or CALLED (by another rank's watchdog). The rank had
    ended `step` of the `steps` of its phase, the `phases`-th, and no step for `quiet_seconds`. Its
    process was stopped for `stopped_seconds` before this report. `at` is the innermost frame of the
    main thread, `hosts` the host of each rank, empty if not known yet.
    """

    rank: int
    host: str
    cause: str
    phase: str
    phases: int
    step: int
    steps: int
    quiet_seconds: float
    stopped_seconds: float
    at: str
    hosts: Tuple[str, ...]
    step_seconds: Tuple[float, ...]


@contextmanager
def watch_rank(
    attempt_dir: Path, stall_seconds: Optional[float], world: World
) -> Iterator[Position]:
    """Run the watchdog of this rank; yields the Position that the main thread has to update.

    `stall_seconds` is how long no step may end: None derives it from the steps so far, 0 is no
    limit. At a stall, a signal or the call of another rank, the process is ended.
    """
    (attempt_dir / STALLS_DIR).mkdir(exist_ok=True)
    stacks = get_rank_path(attempt_dir, world.rank, STACKS)
    allow_tracing()
    with stacks.open("w", encoding="utf-8") as file:
        watch = WatchdogState(attempt_dir, stall_seconds, world, file)
        faulthandler.register(STACKS_SIGNAL, file)
        thread = threading.Thread(target=watch.run, name="watch", daemon=True)
        thread.start()
        try:
            yield watch.position
        finally:
            watch.is_over = True
            signal.pthread_kill(cast(int, thread.ident), TIME_LIMIT_SIGNAL)
            thread.join()
            faulthandler.unregister(STACKS_SIGNAL)
    stacks.unlink()
    # fails while another rank still has a file in the folder
    with suppress(OSError):
        (attempt_dir / STALLS_DIR).rmdir()


class WatchdogState:
    """The state of the watchdog thread; setting `is_over` ends the thread."""

    def __init__(
        self, attempt_dir: Path, stall_seconds: Optional[float], world: World, stacks: IO[str]
    ) -> None:
        self.position = Position()
        self.is_over = False
        self._attempt_dir = attempt_dir
        self._world = world
        self._stacks = stacks
        self._stopped_seconds = 0.0
        self._pace = ProgressMonitor(stall_seconds, time.monotonic())

    def run(self) -> None:
        """Poll the position; end the process on a stall, a signal or another rank's CALL_FILE."""
        while True:
            self._set_timer()
            began = time.monotonic()
            is_told = await_signal(self._pace.poll_seconds)
            # a long delay means that the process was stopped, then continued by the launcher
            late_seconds = time.monotonic() - began - self._pace.poll_seconds
            self._stopped_seconds = late_seconds if late_seconds > ANSWER_SECONDS else 0.0
            if self.is_over:
                faulthandler.cancel_dump_traceback_later()
                return
            cause = self._find_cause(is_told)
            if cause:
                self._end(cause)

    def _set_timer(self) -> None:
        """Set faulthandler's timer, which dumps the stacks and ends the rank without the GIL.

        The watchdogs of other ranks expire earlier, and wait for this rank's stacks. A rank that
        shares its host leaves them time to take its native stacks.
        """
        seconds = self._pace.limit_seconds + 2 * self._pace.poll_seconds
        if self._world.hosts.count(socket.gethostname()) > 1:
            seconds += self._answer_seconds + EVIDENCE_SECONDS
        if math.isfinite(seconds):
            faulthandler.dump_traceback_later(seconds, file=self._stacks, exit=True)

    def _find_cause(self, is_told: bool) -> str:
        """Return why the rank must end now, or ""; `is_told` is whether the warning signal came."""
        if is_told:
            is_preempted = (self._attempt_dir / PREEMPTED_FILE).exists()
            return PREEMPTED if is_preempted else TIME_LIMIT
        now = time.monotonic()
        self._pace.record((self.position.phases, self.position.step), now)
        if self._pace.find_idle_seconds(now) > self._pace.limit_seconds:
            return STALLED
        return CALLED if (self._attempt_dir / STALLS_DIR / CALL_FILE).exists() else ""

    def _end(self, cause: str) -> None:
        """Write the status of this rank, wait for that of the others, and end the process.

        After a stall, evidence of each host is collected before any rank ends.

        The launcher then ends all remaining ranks. A rank that has finished meanwhile is not ended.
        """
        faulthandler.cancel_dump_traceback_later()
        why = "at the request of another rank" if cause == CALLED else cause
        message = f"rank {self._world.rank}: ended by the watchdog ({why}); see {STALLS_DIR}/"
        print(message, file=sys.stderr, flush=True)
        try:
            faulthandler.dump_traceback(self._stacks)
            call = self._attempt_dir / STALLS_DIR / CALL_FILE
            if not call.exists():
                call.write_text(cause, encoding="ascii")
            path = get_rank_path(self._attempt_dir, self._world.rank, STATUS)
            write_sidecar(path, self._describe(cause))
            waiting = self._await_reports(range(self._world.size), self._answer_seconds)
            if call.read_text(encoding="ascii") == STALLED:
                waiting = self._collect_evidence(waiting)
            for rank in waiting:
                get_rank_path(self._attempt_dir, rank, SILENT).touch()
        finally:
            # exit even if the files cannot be written
            if not self.is_over:
                os._exit(EXIT_CODE)

    def _describe(self, cause: str) -> RankStatus:
        position = self.position
        return RankStatus(
            rank=self._world.rank,
            host=socket.gethostname(),
            cause=cause,
            phase=position.phase,
            phases=position.phases,
            step=position.step,
            steps=position.steps,
            quiet_seconds=self._pace.find_idle_seconds(time.monotonic()),
            stopped_seconds=self._stopped_seconds,
            at=find_innermost_line(),
            hosts=tuple(self._world.hosts),
            step_seconds=tuple(position.read_seconds()),
        )

    @property
    def _answer_seconds(self) -> float:
        return ANSWER_SECONDS + LOOKS_TO_ANSWER * self._pace.poll_seconds

    def _await_reports(self, ranks: Iterable[int], seconds: float) -> Set[int]:
        """Wait until these ranks have reported; return those that have not within `seconds`."""
        deadline = time.monotonic() + seconds
        waiting = set(ranks)
        while waiting and time.monotonic() < deadline and not self.is_over:
            waiting = {rank for rank in waiting if not has_reported(self._attempt_dir, rank)}
            time.sleep(POLL_SECONDS)
        return set() if self.is_over else waiting

    def _collect_evidence(self, silent: Set[int]) -> Set[int]:
        """Have each host's evidence collected, and await it; return the ranks that are silent.

        `silent` are the ranks that have not reported. Only those of hosts on which no rank answers
        may still report, by their timers.
        """
        # in case a debugger does not let go of this rank
        faulthandler.dump_traceback_later(4 * EVIDENCE_SECONDS, file=self._stacks, exit=True)
        folder, own_host = self._attempt_dir, socket.gethostname()
        start_collector(folder, own_host)
        dump_flight_recorder(folder / STALLS_DIR / f"flight_{self._world.rank}")
        hosts = dict(enumerate(self._world.hosts or [own_host]))
        answering = {host for rank, host in hosts.items() if rank not in silent}
        missing, deadline = set(answering), time.monotonic() + EVIDENCE_SECONDS
        while missing and time.monotonic() < deadline and not self.is_over:
            missing = {host for host in missing if not is_filled(get_evidence_path(folder, host))}
            time.sleep(POLL_SECONDS)
        unheard = {rank for rank in silent if hosts.get(rank) not in answering}
        self._await_reports(unheard, self._answer_seconds + EVIDENCE_SECONDS)
        return {rank for rank in silent if not has_reported(self._attempt_dir, rank)}


def has_reported(attempt_dir: Path, rank: int) -> bool:
    """Return whether a rank has written its RankStatus, or at least its stack traces."""
    has_status = get_rank_path(attempt_dir, rank, STATUS).exists()
    return has_status or is_filled(get_rank_path(attempt_dir, rank, STACKS))


def find_innermost_line() -> str:
    """Return function, file and line at which the main thread is: "step (training.py:31)"."""
    frame = sys._current_frames()[cast(int, threading.main_thread().ident)]
    line = traceback.extract_stack(frame)[-1]
    return f"{line.name} ({Path(line.filename).name}:{line.lineno})"


def await_signal(seconds: float) -> bool:
    """Wait for the time limit's warning signal; return whether it came within `seconds`.

    CPython returns a meaningless siginfo if the process was stopped and continued meanwhile.
    """
    info = signal.sigtimedwait([TIME_LIMIT_SIGNAL], seconds)
    return info is not None and info.si_signo == TIME_LIMIT_SIGNAL
