"""A log file -> lines of text without launchers' labels, colour codes and NUL bytes.

Reads line by line: needs no more memory than the longest line, which is cut at 1 MiB.
"""

import gzip
import re
from pathlib import Path
from typing import IO, Dict, Iterable, Iterator, List, NamedTuple, Tuple, cast

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import open_file

LONGEST_LINE_BYTES = 1 << 20
# uncompressed; an ImageNet training that prints every step needs a hundredth of this
LARGEST_LOG_BYTES = 1 << 30

# Open MPI --tag-output and --timestamp-output, horovodrun; PMIx of Open MPI 5 has a longer job id
_MPI_LABEL = re.compile(
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4} ?)?"
    r"\[(?:[\w.@-]{1,99},)?(\d{1,7})\]<(stdout|stderr|stddiag)>:"
)
# srun --label pads the task ID; torchrun prints [default0]: or [rank0]:
_LINE_LABEL = re.compile(r"\s{0,7}(\d{1,7}): |\[(?:default|rank ?)(\d{1,7})\]:\s?")
# timestamps of docker, kubectl and CI services; no benchmark begins its own lines like this
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) ")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]")
_GZIP_MAGIC = b"\x1f\x8b"

Source = Tuple[str, str]
"""Rank and stream in a label of Open MPI; ("-1", "") without a label."""


class LogLine(NamedTuple):
    """A line without label and indentation; rank -1 if no launcher labelled it.

    `is_last_unended` is true for a file's last line without a line end: it may be cut short.
    """

    rank: int
    text: str
    is_last_unended: bool


def read_lines(path: Path) -> Iterator[LogLine]:
    """Yield the lines of a log, plain or gzip.

    Raises OSError, EOFError or zlib.error if the log cannot be read to its end.
    """
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
            raise FileProblem(f"{path}: has more than {LARGEST_LOG_BYTES} bytes, the limit")
        yield chunk


def split_lines(chunks: Iterable[bytes]) -> Iterator[LogLine]:
    """Yield the lines of each rank from `chunks`, the physical lines of a log.

    Open MPI forwards output in blocks: a line that is cut at the end of a block continues in the
    rank's next block, possibly many lines of other ranks later.
    """
    cut: Dict[Source, str] = {}
    for chunk in chunks:
        yield from _split_line(chunk, cut)
    for (rank, _), text in cut.items():
        yield LogLine(int(rank), text.lstrip(" \t"), True)


def _split_line(chunk: bytes, cut: Dict[Source, str]) -> List[LogLine]:
    """Split a physical line at progress bars' carriage returns and at labels of other ranks.

    `cut` has, by rank and stream, the beginnings of lines whose ends have not been read yet.
    """
    is_unended = not chunk.endswith(b"\n") and len(chunk) < LONGEST_LINE_BYTES
    # concatenated files may have a byte-order mark in the middle
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
        LogLine(rank, part.lstrip(" \t"), is_unended and index == last)
        for index, (rank, part) in enumerate(parts)
    ]


def _split_label(text: str) -> Tuple[int, str]:
    match = _LINE_LABEL.match(text)
    if match is None:
        return -1, text
    return int(match.group(1) or match.group(2)), text[match.end() :]


def _split_mpi_labels(text: str, cut: Dict[Source, str]) -> List[Tuple[int, str]]:
    """Split a physical line at Open MPI's labels, "[1,0]<stdout>:" -> (rank, text) of whole lines.

    Open MPI labels every write, so that a line may have writes of several ranks, of which only the
    last one is complete. The others are kept in `cut`, by rank and stream, and put before their
    next piece. The rank is -1 for text without a label.
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
