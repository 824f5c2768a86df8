"""An exception that no command handles -> a file with its traceback, and two lines about both."""

import os
import platform
import sys
import tempfile
import traceback

# EX_SOFTWARE of sysexits.h
EXIT_CODE = 70


def report_internal_error(error: Exception, version: str) -> int:
    """Write the traceback of an unexpected error to a private file; return the exit code.

    The file's name is printed, to be sent with a report. If no file can be written, the traceback
    is printed. `version` is that of this tool.
    """
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    # other arguments may contain secrets
    heading = f"dlperf_slurm {version}, Python {platform.python_version()}, {command}\n"
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    summary = traceback.format_exception_only(type(error), error)[-1].strip()
    print(f"dlperf-slurm: internal error: {summary[:500]!a}", file=sys.stderr)
    try:
        descriptor, path = tempfile.mkstemp(prefix="dlperf-slurm-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(heading + trace)
        print(f"Please report this error and attach {path}", file=sys.stderr)
    except OSError:
        print(heading + trace, file=sys.stderr)
    return EXIT_CODE
