"""Run the command line so that Ctrl-C ends it with one line, without a traceback, at any time."""

import gc
import os
import signal
import sys

# importing `typing` would delay the installation of the signal handler
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Optional

INTERRUPTED_EXIT_CODE = 130
INTERRUPTED = b"\ndlperf-slurm: interrupted; what was submitted runs on\n"
# delay before an interrupt that was lost in a destructor is raised again
AGAIN_SECONDS = 0.01

_interrupts: list[int] = []


def run_interruptible() -> int:
    """Run the command line and return its exit code; Ctrl-C ends it with one line.

    It does so even if a library converts the KeyboardInterrupt into another exception.
    """
    # importing modules creates many objects but no garbage: collect rarely
    gc.set_threshold(100_000)
    try:
        # otherwise SIGINT is ignored on purpose, as by `&` in a script, and stays so
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
            signal.signal(signal.SIGALRM, _interrupt)
            sys.unraisablehook = _print_or_interrupt_again
        from dlperf_slurm.cli import main

        return main()
    except BaseException as error:
        if _interrupts or isinstance(error, KeyboardInterrupt):
            _end()
        raise
    finally:
        # an interrupt during Python's own exit would only print a traceback
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Python's exit would search all objects for garbage, for a fifth of a short command's time
        gc.freeze()


def _interrupt(signal_number: int, frame: "Optional[FrameType]") -> None:
    _interrupts.append(signal_number)
    while frame is not None:
        # An interrupted import can fail with other errors, in destructors or in C; as there is
        # nothing to clean up during imports, end at once.
        if "<frozen importlib" in frame.f_code.co_filename:
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _print_or_interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Print an exception from a destructor, which Python cannot raise; interrupt again on Ctrl-C.

    A KeyboardInterrupt is not printed but raised again a moment later.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _end() -> None:
    os.write(2, INTERRUPTED)
    # after a KeyboardInterrupt inside exec(), even a caught one, Python would end by SIGINT
    os._exit(INTERRUPTED_EXIT_CODE)
