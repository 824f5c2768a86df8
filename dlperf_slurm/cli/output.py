"""Lines and tables -> a terminal as wide as it is, or plain lines; and bytes -> files."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.cli.streams import PlainStream, silence_output
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.writing import write_file as write_whole
from dlperf_slurm.program import PROGRAM

if TYPE_CHECKING:
    from rich.console import Console

    from dlperf_slurm.reports.plots import Plot


def make_console() -> "Console":
    """A console for standard output: as wide as the terminal, or 200 columns where it is none."""
    from dlperf_slurm.reports.plain_console import PlainConsole

    # its own styles are control characters
    file = sys.stdout.stream if isinstance(sys.stdout, PlainStream) else sys.stdout
    if not sys.stdout.isatty():
        # Programs and grep read piped output: it is not wrapped at 80 columns.
        return PlainConsole(file=file, width=200)
    if os.environ.get("TERM") in ("dumb", "unknown"):
        # rich takes 80 columns there unless it is told both
        size = shutil.get_terminal_size()
        return PlainConsole(file=file, width=size.columns, height=size.lines)
    return PlainConsole(file=file)


def say(line: str) -> None:
    """Print at once; a reader that is gone (`| head`) stops nothing of what is being done."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        silence_output()


def warn(line: str) -> None:
    """Tell on standard error what went wrong beside what was asked for."""
    print(f"{PROGRAM}: {line}", file=sys.stderr)


def check_plot_file(path: Optional[Path]) -> None:
    """Check a plot's file before anything is printed; raises InputError for an unknown format."""
    if path is not None and path.suffix not in (".svg", ".pdf"):
        raise InputError(f"--plot: {path}: write FILE.svg or FILE.pdf")


def write_plot(plot: "Plot", path: Path) -> None:
    write_file(path, "--plot", plot.svg if path.suffix == ".svg" else plot.pdf)


def write_file(path: Path, option: str, data: bytes) -> None:
    """Write a file that `option` asks for; raises InputError, which names it, when that fails."""
    path = path.resolve()
    try:
        if path.exists() and not path.is_file():
            # a terminal or a pipe, which takes what it is given
            path.write_bytes(data)
        else:
            write_whole(path, data)
    except OSError as error:
        raise InputError(f"{option}: {error}") from error
