"""The signal that warns ranks before the job's time limit, and which thread receives it."""

import signal

# sent by the job script; launchers forward it to the ranks
TIME_LIMIT_SIGNAL = signal.SIGUSR1


def block_signal() -> None:
    """Block the time limit's warning signal in this thread and all that it starts.

    The watchdog waits for the signal. Call this before any thread starts, MPI's included. A Python
    handler would run in the main thread, which may never return from MPI.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {TIME_LIMIT_SIGNAL})
