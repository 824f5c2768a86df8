"""Processes that end with others: a command with this one, this one with its parent."""

import ctypes
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO, Optional, Sequence

from dlperf_slurm.worker.time_limit import TIME_LIMIT_SIGNAL

TERMINATED_EXIT_CODE = 143
PR_SET_PDEATHSIG = 1


class Child:
    """Runs one command after the other; SIGTERM ends the one that runs, and then this process.

    With a session of its own, all processes of the command are ended: a shell that is told to end
    would leave alone what it has started. Without one, the command starts ranks of ours, and the
    warning before the time limit is handed on to it; others would die of it.
    """

    def __init__(self, has_session: bool = False) -> None:
        self._has_session = has_session
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._is_terminated = False
        signal.signal(signal.SIGTERM, self._terminate)
        signal.signal(TIME_LIMIT_SIGNAL, self._warn)

    def run(self, command: Sequence[str], folder: Path, out: IO[bytes], err: IO[bytes]) -> int:
        """Its exit code as a shell has it: an end by a signal is 128 and its number.

        Raises SystemExit when this process was told to end before the command had.
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
            # told before there was a process to pass it on to
            self._end_process()
        exit_code = self._process.wait()
        if self._is_terminated:
            raise SystemExit(TERMINATED_EXIT_CODE)
        return exit_code if exit_code >= 0 else 128 - exit_code

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


def end_with_parent(parent_id: int) -> None:
    """Let this process be killed when the one that started it ends in whatever way (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_id:
        raise SystemExit("the process that started this one has ended")
