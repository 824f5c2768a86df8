"""Run the command line so that Ctrl-C ends it with one line at any moment."""

import os
import signal
import sys

# an import of `typing` would be the longest part of the time before an interrupt is ours
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Optional

INTERRUPTED_EXIT_CODE = 130
INTERRUPTED = b"\ndlperf-slurm: interrupted; what was submitted runs on\n"
# until an interrupt is raised anew that a destructor had swallowed
AGAIN_SECONDS = 0.01

_interrupts: list[int] = []


def run_interruptible() -> int:
    """Run the command line and return its exit code.

    An interrupt ends it with one line, whatever libraries make of the exception that it raises.
    """
    try:
        # else it is ignored, by whoever started this one: nohup and `&` do so
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
            signal.signal(signal.SIGALRM, _interrupt)
            sys.unraisablehook = _tell_or_interrupt_again
        from dlperf_slurm.cli import main

        return main()
    except BaseException as error:
        if _interrupts or isinstance(error, KeyboardInterrupt):
            _end()
        raise
    finally:
        # while Python itself ends, there is nothing left to interrupt
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(signal_number: int, frame: "Optional[FrameType]") -> None:
    _interrupts.append(signal_number)
    while frame is not None:
        # Modules that are cut short while they are imported break with errors of their own, some
        # of them in a destructor, some in C; and nothing is to be cleaned up there.
        if "<frozen importlib" in frame.f_code.co_filename:
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _tell_or_interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Python can but print what is raised in a destructor; an interrupt is raised again later."""
    if unraisable.exc_type is KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(unraisable)


def _end() -> None:
    os.write(2, INTERRUPTED)
    # Python would end itself by the signal if the exception went through exec()
    os._exit(INTERRUPTED_EXIT_CODE)
