"""The signal that warns ranks before the job's time limit, and who is to take it."""

import signal

# the job script sends it, and launchers hand it on to the ranks
TIME_LIMIT_SIGNAL = signal.SIGUSR1


def hold_back_signal() -> None:
    """Leave the signal to the watch; to be called before any other thread begins, as MPI's do.

    A handler of Python's would run in the main thread, which may never come back from MPI.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {TIME_LIMIT_SIGNAL})
