"""Timestamps of the job script and of rank 0 -> seconds of each phase of an attempt.

All timestamps are by the wall clock of the host, as those of `date` in the script.
"""

import builtins
import os
import threading
import time
from pathlib import Path
from typing import Any, List, Mapping, Optional, Tuple

from dlperf_slurm.contract.phases import LAUNCHER, PYTHON, SCRIPT, Phase
from dlperf_slurm.worker.host import read_stat

# exported by the job script: when the array task began, and when it called the launcher
BEGUN_VARIABLE = "DLPERF_SLURM_BEGUN_AT"
LAUNCHED_VARIABLE = "DLPERF_SLURM_LAUNCHED_AT"


class Phases:
    """The phases of one execution of an attempt's job script that have ended, in order of time.

    Names of phases are the keys of `contract.phases.MEANINGS`.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Compute the phases before this process from the job script's timestamps in `environ`.

        Phases without a timestamp are left out.
        """
        process_start = find_process_start()
        begun, launched = (_read(environ, name) for name in (BEGUN_VARIABLE, LAUNCHED_VARIABLE))
        # from here on no step of the wall clock, as by NTP, counts
        now = time.time()
        self._offset = now - time.monotonic()
        known = [(SCRIPT, launched), (LAUNCHER, process_start), (PYTHON, now)]
        # without the launch, the time of script and launcher would count as Python's
        first = begun or launched if launched else process_start
        self._begun = first or now
        skipped = 0 if begun and launched else 1 if launched else 2
        # name and end of each phase
        self._ends: List[Tuple[str, float]] = [
            (name, end) for name, end in known[skipped:] if end is not None
        ]

    def end(self, name: str) -> None:
        """End the current phase, which has this name, and begin the next one."""
        self._ends.append((name, self._offset + time.monotonic()))

    def list_phases(self, parts: Mapping[str, Tuple[str, float]]) -> Tuple[Phase, ...]:
        """Return the ended phases with their durations; 0 seconds if the clock was set back.

        `parts` splits phases: {"session": ("framework", 3.5)} makes the first 3.5 seconds of the
        phase "session" a phase "framework".
        """
        begun, phases = self._begun, []
        for name, end in self._ends:
            seconds = max(0.0, end - begun)
            if name in parts:
                first, first_seconds = parts[name]
                first_seconds = min(first_seconds, seconds)
                phases.append(Phase(first, first_seconds))
                seconds -= first_seconds
            phases.append(Phase(name, seconds))
            begun = end
        return tuple(phases)


class ImportTimer:
    """Context manager that sums the seconds of this thread's imports; nested ones count once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_within = False

    def __enter__(self) -> "ImportTimer":
        self._import = builtins.__import__
        self._thread = threading.get_ident()
        builtins.__import__ = self._time_import
        return self

    def __exit__(self, *raised: Any) -> None:
        builtins.__import__ = self._import

    def _time_import(self, *arguments: Any, **named: Any) -> Any:
        if self._is_within or threading.get_ident() != self._thread:
            return self._import(*arguments, **named)
        self._is_within = True
        start = time.perf_counter()
        try:
            return self._import(*arguments, **named)
        finally:
            self.seconds += time.perf_counter() - start
            self._is_within = False


def find_process_start() -> Optional[float]:
    """Return the start time of this process in seconds since the epoch, or None if not known.

    The kernel counts clock ticks, usually 1/100 s, since boot (proc_pid_stat(5), field 22).
    """
    try:
        ticks = int(read_stat(Path("/proc/self"))[1][19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return time.time() - age


def _read(environ: Mapping[str, str], name: str) -> Optional[float]:
    """Return the time in a variable, in seconds since the epoch; None if missing or invalid."""
    try:
        return float(environ[name])
    except (KeyError, ValueError):
        return None
