"""Processes that end with others: a command with this process, this process with its parent."""

import ctypes
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Callable, Optional, Sequence

# warns before the time limit; sent by the job script, launchers forward it to the ranks
TIME_LIMIT_SIGNAL = signal.SIGUSR1
TERMINATED_EXIT_CODE = 143
POLL_SECONDS = 10.0
PR_SET_PDEATHSIG = 1
PR_SET_PTRACER = 0x59616D61
ANY_PROCESS = -1


class CommandRunner:
    """Runs commands one after the other; SIGTERM ends the running command and then this process.

    With a session of its own (`has_session`), all of a command's processes are ended: a shell on
    its own would leave its children running. Without one, the command starts worker ranks, and the
    warning signal before the time limit is forwarded to it; other programs would die of that
    signal.
    """

    def __init__(self, has_session: bool = False) -> None:
        self._has_session = has_session
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._is_terminated = False
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(TIME_LIMIT_SIGNAL, self._warn)

    def run(
        self,
        command: Sequence[str],
        folder: Path,
        out: IO[bytes],
        err: IO[bytes],
        is_done: Optional[Callable[[], bool]] = None,
    ) -> int:
        """Run a command in `folder` and return its exit code; 128 + n after an end by signal n.

        `out` and `err` get its output. `is_done` is called now and then: once it returns True, the
        command is ended, with exit code 0. Raises SystemExit if this process received SIGTERM
        before the command ended.
        """
        self._process = subprocess.Popen(
            list(command),
            cwd=str(folder),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=self._has_session,
        )
        if self._is_terminated:
            # SIGTERM came before there was a process to forward it to
            self._end_process()
        exit_code = self._wait(is_done) if is_done is not None else self._process.wait()
        if self._is_terminated:
            raise SystemExit(TERMINATED_EXIT_CODE)
        return exit_code if exit_code >= 0 else 128 - exit_code

    def _wait(self, is_done: Callable[[], bool]) -> int:
        """Wait for the command and return its exit code, or end it once it is done."""
        process, seconds = self._process, POLL_SECONDS
        assert process is not None, "no command was started"
        while True:
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
            begin = time.monotonic()
            if is_done():
                self._end_process()
                process.wait()
                return 0
            # asking takes at most a twentieth of the time
            seconds = max(POLL_SECONDS, 20 * (time.monotonic() - begin))

    def _terminate(self, signal_number: int, frame: Optional[FrameType]) -> None:
        self._is_terminated = True
        self._end_process()

    def _warn(self, signal_number: int, frame: Optional[FrameType]) -> None:
        if self._process is not None and not self._has_session:
            self._process.send_signal(TIME_LIMIT_SIGNAL)

    def _end_process(self) -> None:
        if self._process is None:
            return
        if not self._has_session:
            self._process.terminate()
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)


def block_signal() -> None:
    """Block the time limit's warning signal in this thread and all that it starts.

    The watchdog waits for the signal. Call this before any thread starts, MPI's included. A Python
    handler would run in the main thread, which may never return from MPI.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {TIME_LIMIT_SIGNAL})


def end_with_parent(parent_id: int) -> None:
    """Make the kernel kill this process when its parent ends in any way (prctl(2)).

    Raises SystemExit if the parent has ended already.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_id:
        raise SystemExit("the parent process has ended")


def allow_tracing() -> None:
    """Let debuggers of the same user examine this process where Yama forbids it (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_long(ANY_PROCESS))
