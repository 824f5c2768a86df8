"""An archive that a stranger made: it has no file but those below its one folder."""

import zipfile

import pytest

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.archives import find_archive
from dlperf_slurm.files.listing import has_file, list_names
from dlperf_slurm.files.reading import read_text


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


def test_what_is_not_there_is_not_found(make):
    path = make("run/a/b")
    for name in ("x", "a/x", "run/a"):
        with pytest.raises(FileNotFoundError):
            read_text(path / name, root=path)
    with pytest.raises(FileNotFoundError):
        list_names(path / "x", path)
    with pytest.raises(FileProblem, match="regular file"):
        read_text(path / "a", root=path)


def test_path_that_leads_out_of_an_archive_is_refused(make):
    path = make("run/a")
    (path.parent / "secret").write_text("x")
    with pytest.raises(FileProblem, match="leads out of"):
        read_text(path / ".." / "secret", root=path)


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("a/b", "c/d"), "in one folder"),
        (("a",), "in one folder"),
        ((), "in one folder"),
        (("a/b", "a/b/c"), "'b' .*folder"),
        (("a/b", "a/../../c"), "below its folder"),
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
