"""sys.argv and the environment -> the command in the tool's hints, and its folder of runs.

Every command imports this module, so it imports nothing slow.
"""

import os
import sys

PROGRAM = "dlperf-slurm"
# the name by which a command line refers to the newest run
LATEST = "latest"


def find_command() -> str:
    """Return the command by which the user started the tool, for messages that suggest commands.

    It is "dlperf-slurm", the script's path if PATH does not lead to it, or "python3 -m
    dlperf_slurm". In a job, a test or a notebook it is "dlperf-slurm".
    """
    started = sys.argv[0] if sys.argv else ""
    folder, name = os.path.split(started)
    if name == "__main__.py" and os.path.basename(folder) == __name__.partition(".")[0]:
        # Python 3.9 has no sys.orig_argv
        python = getattr(sys, "orig_argv", [sys.executable])[0]
        return f"{_quote(python)} -m {os.path.basename(folder)}"
    if name != PROGRAM:
        return PROGRAM
    places = (os.path.join(folder, PROGRAM) for folder in os.get_exec_path())
    on_path = next(filter(os.path.isfile, places), "")
    return PROGRAM if on_path and os.path.samefile(on_path, started) else _quote(started)


def find_results_dir() -> str:
    """Return the default folder of runs: $DLPERF_SLURM_RESULTS, or "results"."""
    return os.environ.get("DLPERF_SLURM_RESULTS") or "results"


def _quote(word: str) -> str:
    from shlex import quote

    return quote(word)


COMMAND = find_command()
