"""Inherited standard output and error -> streams to print to, without control characters.

Every command imports this module, which therefore imports nothing slow, not even `typing`.
"""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dlperf_slurm.plain_text import break_workflow_commands, strip_controls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, TextIO


class PlainStream:
    """A stream without control characters and commands of GitHub's, that otherwise delegates."""

    def __init__(self, stream: "TextIO") -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(break_workflow_commands(strip_controls(text)))
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Remove control characters from all output in this context: a run may be a stranger's."""
    before = sys.stdout, sys.stderr
    for name, stream in zip(("stdout", "stderr"), before):
        setattr(sys, name, PlainStream(stream))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def replace_closed_streams() -> None:
    """Open closed standard streams (`>&-`), so that no file opened later gets their descriptor."""
    for descriptor, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # open() returns the lowest free descriptor, which is the closed one
            os.open(os.devnull, flags)
    # Python sets a closed stream to None
    streams: tuple[Optional[TextIO], Optional[TextIO]] = (sys.stdout, sys.stderr)
    if streams[0] is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if streams[1] is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def escape_unencodable() -> None:
    """Make standard output escape characters outside its encoding, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def find_width() -> int:
    """Return the columns of the terminal, from COLUMNS or the terminal itself, or 80.

    `shutil.get_terminal_size` does the same, but importing shutil also loads three compressors.
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
    """Discard output that is still buffered after the reader of a pipe, such as `head`, has ended.

    Otherwise Python would fail at its exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
