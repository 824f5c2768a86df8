"""Where the commands print, to a terminal as wide as it is or plain lines, and write files."""

import io
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from dlperf_slurm.reports.plots import Plot

PROGRAM = "dlperf-slurm"


def make_console() -> "Console":
    from rich.console import Console

    if not sys.stdout.isatty():
        # piped output is read by programs and by grep: no wrapping at 80 columns there
        return Console(width=200)
    if os.environ.get("TERM") in ("dumb", "unknown"):
        # where rich takes 80 columns unless it is told both
        size = shutil.get_terminal_size()
        return Console(width=size.columns, height=size.lines)
    return Console()


def escape_unencodable() -> None:
    """On standard output; standard error does so from the start."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def say(line: str) -> None:
    """Print at once; a reader that is gone (`| head`) stops nothing of what is being done."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        silence_output()


def say_renamed(former: str, name: str) -> None:
    """Tell on standard error what the words that were used are called now."""
    print(f"{PROGRAM}: `{former}` is now `{name}`", file=sys.stderr)


def silence_output() -> None:
    """For a reader that is gone: what is still buffered must not raise at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_plot_file(path: Optional[Path]) -> None:
    """Before anything is measured or printed: InputError for a format that there is not."""
    if path is not None and path.suffix not in (".svg", ".pdf"):
        raise InputError(f"--plot: {path}: write FILE.svg or FILE.pdf")


def write_plot(plot: "Plot", path: Path) -> None:
    write_file(path, "--plot", plot.svg if path.suffix == ".svg" else plot.pdf)


def write_file(path: Path, option: str, data: bytes) -> None:
    """InputError, which names the option, when it cannot be written."""
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"{option}: {error}") from error
