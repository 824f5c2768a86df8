"""A log file -> lines of text: labels of launchers, colours and broken bytes taken off.

Streams: a log of gigabytes takes no more memory than its longest line, which is cut at 1 MiB.
"""

import gzip
import re
from pathlib import Path
from typing import IO, Iterator, List, NamedTuple, Tuple, cast

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import open_file

LONGEST_LINE_BYTES = 1 << 20
# unpacked; a training of ImageNet that prints each step has a hundredth of it
LARGEST_LOG_BYTES = 1 << 30

# Open MPI --tag-output and --timestamp-output, horovodrun; PMIx of Open MPI 5 has a longer job id
_MPI_LABEL = re.compile(
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} ?)?"
    r"\[(?:[\w.@-]{1,99},)?(\d{1,7})\]<(stdout|stderr|stddiag)>:"
)
# srun --label pads the task to the width of the largest; torchrun and its kin name the rank
_LINE_LABEL = re.compile(r"\s{0,7}(\d{1,7}): |\[(?:default|rank ?)(\d{1,7})\]:\s?")
# docker and kubectl with --timestamps, CI services: no benchmark begins its own lines so
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) ")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]")
_GZIP_MAGIC = b"\x1f\x8b"


class Line(NamedTuple):
    """A line as its rank wrote it, not indented; rank -1 where no launcher labelled it.

    `is_last_unended` is true for the file's last line if no line end follows: it may be cut short.
    """

    rank: int
    text: str
    is_last_unended: bool


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a log, gzip or plain; OSError or EOFError for what cannot be read to its end."""
    with open_file(path) as file:
        is_gzip = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=file) if is_gzip else file)
        remaining = LARGEST_LOG_BYTES
        for chunk in iter(lambda: stream.readline(LONGEST_LINE_BYTES), b""):
            remaining -= len(chunk)
            if remaining < 0:
                raise FileProblem(f"{path}: has more than {LARGEST_LOG_BYTES} bytes")
            yield from split_line(chunk)


def split_line(chunk: bytes) -> List[Line]:
    """What a physical line holds: several lines where progress bars or other ranks got between."""
    is_unended = not chunk.endswith(b"\n") and len(chunk) < LONGEST_LINE_BYTES
    text = chunk.decode("utf-8", errors="replace").replace("\x00", "")
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    stamp = _STAMP.match(text)
    if stamp is not None:
        text = text[stamp.end() :]
    pieces = text.rstrip("\r\n").split("\r")
    parts = [part for piece in pieces for part in _split_labels(piece)]
    last = len(parts) - 1
    return [
        Line(rank, part.lstrip(" \t"), is_unended and index == last)
        for index, (rank, part) in enumerate(parts)
    ]


def _split_labels(text: str) -> List[Tuple[int, str]]:
    if "]<std" in text:
        return _split_mpi_labels(text)
    match = _LINE_LABEL.match(text)
    if match is None:
        return [(-1, text)]
    return [(int(match.group(1) or match.group(2)), text[match.end() :])]


def _split_mpi_labels(text: str) -> List[Tuple[int, str]]:
    """Open MPI labels every write: pieces of one stream are joined, those of others split off."""
    sources, pieces, end = [("-1", "")], [""], 0
    for match in _MPI_LABEL.finditer(text):
        pieces[-1] += text[end : match.start()]
        if match.groups() != sources[-1]:
            sources.append((match.group(1), match.group(2)))
            pieces.append("")
        end = match.end()
    pieces[-1] += text[end:]
    return [(int(rank), piece) for (rank, _), piece in zip(sources, pieces) if piece.strip()]
