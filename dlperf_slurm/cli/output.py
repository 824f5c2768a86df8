"""Lines and tables -> a terminal as wide as it is, or plain lines; and bytes -> files."""

import io
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TextIO, cast

from dlperf_slurm.errors import InputError
from dlperf_slurm.files.writing import write_file as write_whole
from dlperf_slurm.plain_text import strip_controls

if TYPE_CHECKING:
    from rich.console import Console

    from dlperf_slurm.reports.plots import Plot

PROGRAM = "dlperf-slurm"


class PlainStream:
    """A stream that strips control characters of what is printed; all else is that stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(strip_controls(text))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Standard output and error as plain streams: a run may be a stranger's."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, PlainStream(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


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


def replace_closed_streams() -> None:
    """Open what a caller closed (`>&-`), else the next file opened would be printed into."""
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # the lowest number that is free
            os.open(os.devnull, flags)
    # Python has None in the place of a closed one
    if cast(Optional[TextIO], sys.stdout) is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if cast(Optional[TextIO], sys.stderr) is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def escape_unencodable() -> None:
    """Have standard output escape what its encoding lacks; standard error does so already."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def say(line: str) -> None:
    """Print at once; a reader that is gone (`| head`) stops nothing of what is being done."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        silence_output()


def warn(line: str) -> None:
    """Tell on standard error what went wrong beside what was asked for."""
    print(f"{PROGRAM}: {line}", file=sys.stderr)


def say_renamed(former: str, name: str) -> None:
    """Tell on standard error what the words that were used are called now."""
    print(f"{PROGRAM}: `{former}` is now `{name}`", file=sys.stderr)


def silence_output() -> None:
    """Drop what is still buffered for a reader that is gone, so that it does not raise at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
