"""Where the commands print: a terminal as wide as it is, or plain lines for a pipe."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PROGRAM = "dlperf-slurm"


def make_console() -> "Console":
    from rich.console import Console

    # piped output is read by programs and by grep: no wrapping at 80 columns there
    width = None if sys.stdout.isatty() else 200
    return Console(width=width)
