"""A log file -> lines of text: labels of launchers, colours and broken bytes taken off.

Streams: a log of gigabytes takes no more memory than its longest line, which is cut at 1 MiB.
"""

import gzip
import re
from pathlib import Path
from typing import IO, Dict, Iterable, Iterator, List, NamedTuple, Tuple, cast

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

Source = Tuple[str, str]
"""A rank and its stream, as Open MPI's labels have them; ("-1", "") where there is none."""


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
        yield from split_lines(_read_chunks(stream, path))


def _read_chunks(stream: "IO[bytes]", path: Path) -> Iterator[bytes]:
    remaining = LARGEST_LOG_BYTES
    for chunk in iter(lambda: stream.readline(LONGEST_LINE_BYTES), b""):
        remaining -= len(chunk)
        if remaining < 0:
            raise FileProblem(f"{path}: has more than {LARGEST_LOG_BYTES} bytes")
        yield chunk


def split_lines(chunks: Iterable[bytes]) -> Iterator[Line]:
    """The lines of physical lines.

    Open MPI passes blocks on as ranks flush them: a line that a block's end cut goes on where its
    rank's next block does, many lines of other ranks later.
    """
    cut: Dict[Source, str] = {}
    for chunk in chunks:
        yield from _split_line(chunk, cut)
    for (rank, _), text in cut.items():
        yield Line(int(rank), text.lstrip(" \t"), True)


def _split_line(chunk: bytes, cut: Dict[Source, str]) -> List[Line]:
    """What a physical line holds: several lines where progress bars or other ranks got between.

    `cut` has the beginnings of lines that are still to go on.
    """
    is_unended = not chunk.endswith(b"\n") and len(chunk) < LONGEST_LINE_BYTES
    # a byte-order mark stands where a file began, which may be in the middle of joined ones
    text = chunk.decode("utf-8", errors="replace").replace("\x00", "").replace("\ufeff", "")
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    stamp = _STAMP.match(text)
    if stamp is not None:
        text = text[stamp.end() :]
    text = text.rstrip("\r\n")
    if "]<std" in text:
        labelled = _split_mpi_labels(text, cut)
        parts = [(rank, piece) for rank, whole in labelled for piece in whole.split("\r")]
    else:
        parts = [_split_label(piece) for piece in text.split("\r")]
    last = len(parts) - 1
    return [
        Line(rank, part.lstrip(" \t"), is_unended and index == last)
        for index, (rank, part) in enumerate(parts)
    ]


def _split_label(text: str) -> Tuple[int, str]:
    match = _LINE_LABEL.match(text)
    if match is None:
        return -1, text
    return int(match.group(1) or match.group(2)), text[match.end() :]


def _split_mpi_labels(text: str, cut: Dict[Source, str]) -> List[Tuple[int, str]]:
    """Open MPI labels every write: pieces of one stream are joined, those of others split off.

    Only the last one ends with the physical line; the others are cut.
    """
    sources: List[Source] = [("-1", "")]
    pieces, end = [""], 0
    for match in _MPI_LABEL.finditer(text):
        pieces[-1] += text[end : match.start()]
        if match.groups() != sources[-1]:
            sources.append((match.group(1), match.group(2)))
            pieces.append("")
        end = match.end()
    pieces[-1] += text[end:]
    for source, piece in list(zip(sources, pieces))[:-1]:
        if source[1] and len(cut.get(source, "")) < LONGEST_LINE_BYTES:
            cut[source] = cut.get(source, "") + piece
    ended = [(sources[-1], cut.pop(sources[-1], "") + pieces[-1])]
    if len(pieces) > 1:
        ended.insert(0, (sources[0], pieces[0]))
    return [(int(rank), piece) for (rank, _), piece in ended if piece.strip()]
