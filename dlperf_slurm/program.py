"""The words that started this tool -> the words that its hints begin with.

Every command waits for this module: it imports nothing that takes long.
"""

import os
import sys

PROGRAM = "dlperf-slurm"


def find_command() -> str:
    """Return what starts the tool in a shell as it was typed: `python3 -m dlperf_slurm`, say.

    The console script is named by its path where its name would not find it on PATH. What runs in
    a job, a test or a notebook has the console script's name.
    """
    started = sys.argv[0] if sys.argv else ""
    folder, name = os.path.split(started)
    if name == "__main__.py" and os.path.basename(folder) == __name__.partition(".")[0]:
        # Python 3.9 does not know how it was typed
        python = getattr(sys, "orig_argv", [sys.executable])[0]
        return f"{_quote(python)} -m {os.path.basename(folder)}"
    if name != PROGRAM:
        return PROGRAM
    on_path = next(filter(os.path.isfile, _list_places()), "")
    return PROGRAM if on_path and os.path.samefile(on_path, started) else _quote(started)


def _list_places() -> "list[str]":
    """Return where a shell looks for the console script, in its order."""
    return [os.path.join(folder, PROGRAM) for folder in os.get_exec_path()]


def _quote(word: str) -> str:
    from shlex import quote

    return quote(word)


COMMAND = find_command()
