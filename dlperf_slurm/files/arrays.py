"""The content of an .npy file <-> its array of floats; the header is validated, not evaluated."""

import io
import re
from pathlib import Path
from typing import Any

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.writing import write_file

# The format of numpy.lib.format, version 1.0: magic string, length of the header, header. A header
# is a Python literal, which is matched instead of being evaluated.
_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?f[248])', 'fortran_order': (False|True), "
    rb"'shape': \(((?:\d{1,12}, ?)*(?:\d{1,12})?)\), \}[ ]*\n"
)
LONGEST_HEADER_BYTES = 1024


def parse_array(content: bytes, where: str) -> Any:
    """Return the array in an .npy file of floating-point numbers, given the file's content.

    `where` names the file in messages. Raises FileProblem for any other content, or if the size
    does not match the header. The array is read-only.
    """
    import numpy

    start = len(_MAGIC) + 2 + int.from_bytes(content[len(_MAGIC) : len(_MAGIC) + 2], "little")
    header = _HEADER.fullmatch(content[len(_MAGIC) + 2 : min(start, LONGEST_HEADER_BYTES)])
    if not content.startswith(_MAGIC) or header is None:
        raise FileProblem(f"{where}: is not a .npy file with an array of numbers")
    kind = numpy.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].split(b",") if size.strip())
    size = kind.itemsize
    for length in shape:
        size *= length
    if size != len(content) - start:
        raise FileProblem(
            f"{where}: has {len(content) - start} bytes of data; its header declares {size}"
        )
    array = numpy.frombuffer(content, kind, offset=start)
    return array.reshape(shape, order="F" if header[2] == b"True" else "C")


def write_array(path: Path, array: Any) -> None:
    """Write an array to an .npy file, atomically; raises FileProblem if that fails."""
    import numpy

    buffer = io.BytesIO()
    numpy.save(buffer, array)
    write_file(path, buffer.getbuffer())
