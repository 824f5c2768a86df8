"""Entry point of `python -m dlperf_slurm` and of the console script `dlperf-slurm`.

The module is valid in Python 2.7, so that it can report there which Python the tool needs.
"""

import os
import sys

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_IS_SAFE = getattr(sys.flags, "isolated", False) or getattr(sys.flags, "safe_path", False)

if __name__ == "__main__" and not _IS_SAFE and sys.path[0] != _HOME:
    # -m puts the working directory first, where a file may shadow a module of the standard library
    del sys.path[0]


def main():  # type: () -> int
    """Run the command line and return its exit code.

    If Python is too old or a library is missing, print one line that says how to install the tool.
    The traceback of an exception that no command handles is written to a file, or printed if that
    fails.
    """
    if sys.version_info < (3, 9):
        from dlperf_slurm.installation import describe_old_python

        return _refuse(describe_old_python())
    try:
        from dlperf_slurm.interrupts import run_interruptible

        return run_interruptible()
    except ImportError as error:
        from dlperf_slurm.installation import describe_import_error

        line = describe_import_error(error)
        return _refuse(line) if line else _report(error)
    except Exception as error:
        return _report(error)


def _report(error):  # type: (Exception) -> int
    from dlperf_slurm.internal_error import report_internal_error
    from dlperf_slurm.version import __version__

    return report_internal_error(error, __version__)


def _refuse(line):  # type: (str) -> int
    from dlperf_slurm.installation import NOT_INSTALLED_EXIT_CODE

    sys.stderr.write("dlperf-slurm: error: " + line + "\n")
    return NOT_INSTALLED_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
