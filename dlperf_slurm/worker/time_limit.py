"""The signal that warns ranks before the job's time limit, and which thread receives it."""

import signal

# sent by the job script; launchers forward it to the ranks
TIME_LIMIT_SIGNAL = signal.SIGUSR1


def block_signal() -> None:
    """Block the time limit's warning signal, for which the watchdog waits, in all threads.

    Call this before any thread starts, MPI's included: a Python handler might never run.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {TIME_LIMIT_SIGNAL})
