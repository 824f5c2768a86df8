"""The signal that asks ranks to end before their job does -> whether it means preemption."""

import os
import signal
import time
from typing import Optional

from dlperf_slurm.worker.time_limit import TIME_LIMIT_SIGNAL

# Slurm sends the warning a minute before the time limit, and up to another minute early
# (sbatch(1), --signal); a job that several array tasks share is warned a little sooner.
EARLY_SECONDS = 300.0


def await_signal(seconds: float) -> bool:
    """Wait for the signal; return whether it came.

    CPython returns a siginfo of no meaning where the process was stopped and continued meanwhile.
    """
    info = signal.sigtimedwait([TIME_LIMIT_SIGNAL], seconds)
    return info is not None and info.si_signo == TIME_LIMIT_SIGNAL


def find_seconds_left() -> Optional[float]:
    """Return the seconds until the end of the job that Slurm gave it; None where that is unknown.

    Older versions of Slurm do not set the variable.
    """
    try:
        return float(os.environ["SLURM_JOB_END_TIME"]) - time.time()
    except (KeyError, ValueError):
        return None


def is_preempted() -> bool:
    """Whether a signal that has come now is too early to be the warning before the time limit.

    Slurm sends the same one when it preempts a job with a grace time (PreemptParameters).
    """
    seconds_left = find_seconds_left()
    return seconds_left is not None and seconds_left > EARLY_SECONDS
