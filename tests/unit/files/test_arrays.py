import io
import resource

import numpy
import pytest

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.arrays import parse_array


def save(array):
    file = io.BytesIO()
    numpy.save(file, array)
    return file.getvalue()


def make_header(text):
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", "<f2"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (4,), (1, 1, 2), ()])
def test_array_is_what_was_saved(kind, shape):
    array = numpy.arange(numpy.prod(shape), dtype=kind).reshape(shape)
    for order in "CF":
        found = parse_array(save(numpy.array(array, order=order)), "a.npy")
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert (found == array).all()


SOUND = save(numpy.ones((2, 3)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY\x01\x00",
        SOUND[:-1],
        SOUND + b"\0",
        b"PK" + SOUND,
        SOUND.replace(b"\x01\x00", b"\x02\x00", 1),
        save(numpy.ones((2, 3), dtype="i8")),
        save(numpy.array(["a", "b"])),
        make_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"),
        make_header("{'descr': '<f8', 'fortran_order': False, 'shape': (999999, 999999), }"),
        make_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"),
        make_header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1, " * 9000 + "), }"),
        make_header("(" * 30_000),
        make_header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 60_000 + ",), }"),
    ],
)
def test_file_that_is_not_what_its_header_tells_is_refused(content):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileProblem, match=r"^a\.npy: "):
        parse_array(content, "a.npy")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16
