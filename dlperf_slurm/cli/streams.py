"""Standard output and error, as a caller left them -> what can be printed to, controls stripped.

Every command waits for this module: it imports nothing that takes long, `typing` neither.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dlperf_slurm.plain_text import strip_controls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, TextIO


class PlainStream:
    """A stream that strips control characters of what is printed; all else is that stream's own."""

    def __init__(self, stream: "TextIO") -> None:
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
    for name, stream in zip(("stdout", "stderr"), before):
        setattr(sys, name, PlainStream(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def replace_closed_streams() -> None:
    """Open what a caller closed (`>&-`), else the next file opened would be printed into."""
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # the lowest number that is free
            os.open(os.devnull, flags)
    # Python has None in the place of a closed one
    streams: tuple[Optional[TextIO], Optional[TextIO]] = (sys.stdout, sys.stderr)
    if streams[0] is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if streams[1] is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def escape_unencodable() -> None:
    """Have standard output escape what its encoding lacks; standard error does so already."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def find_width() -> int:
    """The columns of the terminal, by COLUMNS or as it says itself, or 80.

    `shutil` has the same, and loads three compressors for what else it does.
    """
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    try:
        return columns if columns > 0 else os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def silence_output() -> None:
    """Drop what is still buffered for a reader that is gone, so that it does not raise at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
