"""An archive that a stranger made: what might lead astray is refused with its name."""

import io
import resource
import stat
import struct
import zipfile

import pytest

from dlperf_slurm.files import FileProblem, archives
from dlperf_slurm.files.archive_lookup import find_archive, has_file, list_names
from dlperf_slurm.files.archives import list_members, make_entry, read_member, write_members
from dlperf_slurm.files.reading import read_text

NAMES = ("../a", "a/../b", "/a", "a//b", "./a", "a\\b", "a\nb", "..", "a/..", "a/./b")
KINDS = (stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR)


def make_zip(*contents):
    file = io.BytesIO()
    write_members(file, contents)
    return file


def read(file, name):
    return read_member(file, list_members(file, "a.zip")[name], 2**20, f"a.zip/{name}")


def make_strange(name="a", **values):
    """Make a ZIP file whose only entry has other attributes than ours."""
    entry = make_entry(name)
    for key, value in values.items():
        setattr(entry, key, value)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(entry, b"x" * 100)
    return file


@pytest.fixture
def make(tmp_path):
    def make(*names):
        path = tmp_path / "run.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, f"in {name}")
        return path

    return make


def test_files_and_folders_are_those_of_its_one_folder(make):
    path = make("run/", "run/a", "run/b/c/d")
    assert read_text(path / "a", root=path) == "in run/a"
    assert read_text(path / "b/c/d", root=path) == "in run/b/c/d"
    assert sorted(list_names(path, path)) == ["a", "b"]
    assert list_names(path / "b", path) == ["c"]
    assert has_file(path / "b/c/d", path)
    assert not has_file(path / "b/x/d", path)
    for name in ("x", "b/x", "run/a"):
        with pytest.raises(FileNotFoundError):
            read_text(path / name, root=path)
    with pytest.raises(FileNotFoundError):
        list_names(path / "x", path)
    with pytest.raises(FileProblem, match="regular file"):
        read_text(path / "b", root=path)


def test_path_that_leads_out_of_an_archive_is_refused(make):
    path = make("run/a")
    (path.parent / "secret").write_text("x")
    with pytest.raises(FileProblem, match="is outside"):
        read_text(path / ".." / "secret", root=path)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("a/b", "c/d"), "in one folder"),
        (("a",), "in one folder"),
        ((), "in one folder"),
        (("a/b", "a/b/c"), "'b' .*folder"),
        (("a/b", "a/../../c"), "outside of its folder"),
    ],
)
def test_archive_of_another_shape_is_refused_by_name(make, names, problem):
    with pytest.raises(FileProblem, match=rf"run\.zip: .*{problem}"):
        find_archive(make(*names))


def test_folder_that_is_called_as_an_archive_is_a_folder(tmp_path):
    folder = tmp_path / "run.zip"
    folder.mkdir()
    (folder / "a").write_text("x")
    assert read_text(folder / "a", root=folder) == "x"


def test_archive_that_was_written_anew_is_read_anew(make):
    path = make("run/a")
    assert list_names(path, path) == ["a"]
    path = make("run/a", "run/b")
    assert sorted(list_names(path, path)) == ["a", "b"]


def test_members_are_what_was_written_and_in_its_order():
    file = make_zip(("b/c.json", b"{}" * 500), ("a.npy", b"\0\1" * 500), ("e", b""))
    assert list(list_members(file, "a.zip")) == ["b/c.json", "a.npy", "e"]
    assert read(file, "b/c.json") == b"{}" * 500
    assert read(file, "a.npy") == b"\0\1" * 500
    assert read(file, "e") == b""
    assert make_zip(("a", b"1")).getvalue() == make_zip(("a", b"1")).getvalue()


CENTRAL_HEADER = b"PK\1\2"
SOUND = make_zip(("a", b"x")).getvalue()
INNER = make_zip(("b", b"x")).getvalue()
BEHIND_INNER = make_zip(("a.npz", INNER), ("c", b"y")).getvalue()


def damage(offset, value, *contents):
    """Make a ZIP file with other bytes at an offset of the header of its last member."""
    content = bytearray(make_zip(*contents).getvalue())
    place = content.rindex(CENTRAL_HEADER) + offset
    content[place : place + len(value)] = value
    return io.BytesIO(content)


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        *((make_strange(name=name), "outside of its folder") for name in NAMES),
        *((make_strange(external_attr=kind << 16), "'a' .*regular file") for kind in KINDS),
        (make_strange(compress_type=zipfile.ZIP_BZIP2), "deflate"),
        (damage(8, b"\1", ("a", b"x")), "'a' is encrypted"),
        (damage(42, bytes(4), ("a", b"x" * 999), ("b", b"x" * 999)), "'b' overlaps"),
        # the name in the directory of the archive is that of another member
        (damage(46, b"a", ("a", b"1"), ("b", b"2")), r"'a' .*twice"),
        *((io.BytesIO(content), "ZIP") for content in (b"", b"PK", b"x" * 100, SOUND[:-30])),
        # cut short behind a ZIP file that is its member
        (
            io.BytesIO(BEHIND_INNER[: BEHIND_INNER.index(INNER) + len(INNER) + 5]),
            "end of the archive",
        ),
    ],
)
def test_archive_with_what_a_run_does_not_have_is_refused(file, problem):
    with pytest.raises(FileProblem, match=rf"^a\.zip: .*{problem}"):
        list_members(file, "a.zip")


def test_more_members_than_a_run_has_are_refused(monkeypatch):
    monkeypatch.setattr(archives, "MEMBERS_LIMIT", 1)
    with pytest.raises(FileProblem, match=r"^a\.zip: has more than 1 members"):
        list_members(make_zip(("a", b""), ("b", b"")), "a.zip")


def test_member_with_another_name_before_its_bytes_is_refused():
    content = bytearray(make_zip(("a", b"x")).getvalue())
    content[content.index(b"a")] = ord("b")
    with pytest.raises(FileProblem, match="two different names"):
        read(io.BytesIO(content), "a")


def test_member_above_its_limit_is_refused():
    file = make_zip(("a", b"x" * 100))
    with pytest.raises(FileProblem, match=r"^a\.zip/a: has more than 99 bytes"):
        read_member(file, list_members(file, "a.zip")["a"], 99, "a.zip/a")


@pytest.mark.integration
def test_member_that_says_less_than_it_unpacks_to_is_refused_and_never_unpacked():
    file = damage(24, struct.pack("<L", 1000), ("a", b"\0" * 2**28))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FileProblem, match=r"^a\.zip/a: is damaged"):
        read(file, "a")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16


@pytest.mark.parametrize("name", ["a.npy", "a.json"])
def test_changed_byte_of_a_member_is_noticed(name):
    content = bytearray(make_zip((name, b"0123456789" * 9)).getvalue())
    content[len(name) + 40] ^= 1
    with pytest.raises(FileProblem, match=f"^a.zip/{name}: is damaged"):
        read(io.BytesIO(content), name)


def test_archive_of_few_bytes_that_inflate_to_many_is_refused(tmp_path):
    path = tmp_path / "run.zip"
    for megabytes in (90, 130):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(3):
                archive.writestr(f"run/{number}", bytes(megabytes * 10**6))
        if megabytes == 90:
            # a member of which a reader wants less is not inflated whole
            with pytest.raises(FileProblem, match="more than 1000 bytes"):
                read_text(path / "0", 1000, root=path)
    with pytest.raises(FileProblem, match="390000000 bytes"):
        find_archive(path)
