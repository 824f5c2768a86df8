"""A ZIP file that a stranger made: what might lead astray is refused with its name."""

import io
import resource
import stat
import struct
import zipfile

import pytest

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.zips import list_members, make_entry, read_member, write_members

LIMIT = 2**20


def make_zip(*contents):
    file = io.BytesIO()
    write_members(file, contents)
    return file


def read(file, name, limit=LIMIT):
    return read_member(file, list_members(file, "a.zip")[name], limit, f"a.zip/{name}")


def make_strange(name="a", content=b"x" * 100, **values):
    """A ZIP file whose only entry has other values than ours."""
    entry = make_entry(name)
    for key, value in values.items():
        setattr(entry, key, value)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(entry, content)
    return file


def test_members_are_what_was_written_and_in_its_order():
    file = make_zip(("b/c.json", b"{}" * 500), ("a.npy", b"\0\1" * 500), ("e", b""))
    assert list(list_members(file, "a.zip")) == ["b/c.json", "a.npy", "e"]
    assert read(file, "b/c.json") == b"{}" * 500
    assert read(file, "a.npy") == b"\0\1" * 500
    assert read(file, "e") == b""


def test_same_members_are_the_same_bytes():
    assert make_zip(("a", b"1")).getvalue() == make_zip(("a", b"1")).getvalue()


@pytest.mark.parametrize(
    "name", ["../a", "a/../b", "/a", "a//b", "./a", "a\\b", "a\nb", "..", "a/..", "a/./b"]
)
def test_name_that_leads_out_of_the_file_is_refused(name):
    with pytest.raises(FileProblem, match=r"^a\.zip: .* below its folder"):
        list_members(make_strange(name), "a.zip")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_what_is_no_regular_file_is_refused(kind):
    with pytest.raises(FileProblem, match=r"'a' .*regular file"):
        list_members(make_strange(external_attr=kind << 16), "a.zip")


def test_kind_of_compression_that_is_not_ours_is_refused():
    with pytest.raises(FileProblem, match="deflate"):
        list_members(make_strange(compress_type=zipfile.ZIP_BZIP2), "a.zip")


def test_encrypted_member_is_refused():
    content = bytearray(make_zip(("a", b"x")).getvalue())
    content[content.rindex(b"PK\1\2") + 8] |= 1
    with pytest.raises(FileProblem, match="'a' is encrypted"):
        list_members(io.BytesIO(content), "a.zip")


def test_member_that_is_there_twice_is_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", "2")
    with pytest.raises(FileProblem, match=r"'a' .*twice"):
        list_members(file, "a.zip")


def test_members_that_share_their_bytes_are_refused():
    content = bytearray(make_zip(("a", b"x" * 999), ("b", b"x" * 999)).getvalue())
    struct.pack_into("<L", content, content.rindex(b"PK\1\2") + 42, 0)
    with pytest.raises(FileProblem, match="'b' shares bytes"):
        list_members(io.BytesIO(content), "a.zip")


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"x" * 100, make_zip(("a", b"x")).getvalue()[:-30]]
)
def test_what_is_no_whole_zip_file_is_refused(content):
    with pytest.raises(FileProblem, match=r"^a\.zip: .*ZIP"):
        list_members(io.BytesIO(content), "a.zip")


def test_file_cut_short_behind_a_zip_file_that_is_its_member_is_refused():
    inner = make_zip(("b", b"x")).getvalue()
    content = make_zip(("a.npz", inner), ("c", b"y")).getvalue()
    cut = content[: content.index(inner) + len(inner) + 5]
    with pytest.raises(FileProblem, match="end of one"):
        list_members(io.BytesIO(cut), "a.zip")


def test_member_with_another_name_before_its_bytes_is_refused():
    content = bytearray(make_zip(("a", b"x")).getvalue())
    content[content.index(b"a")] = ord("b")
    with pytest.raises(FileProblem, match="two names"):
        read(io.BytesIO(content), "a")


def test_member_above_its_limit_is_refused():
    with pytest.raises(FileProblem, match=r"^a\.zip/a: has more than 99 bytes"):
        read(make_zip(("a", b"x" * 100)), "a", limit=99)


@pytest.mark.integration
def test_member_that_says_less_than_it_unpacks_to_is_refused_and_never_unpacked():
    content = bytearray(make_zip(("a", b"\0" * 2**28)).getvalue())
    struct.pack_into("<L", content, content.rindex(b"PK\1\2") + 24, 1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileProblem, match=r"^a\.zip/a: is damaged"):
        read(io.BytesIO(content), "a")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16


@pytest.mark.parametrize("name", ["a.npy", "a.json"])
def test_changed_byte_of_a_member_is_noticed(name):
    content = bytearray(make_zip((name, b"0123456789" * 9)).getvalue())
    content[len(name) + 40] ^= 1
    with pytest.raises(FileProblem, match=f"^a.zip/{name}: is damaged"):
        read(io.BytesIO(content), name)
