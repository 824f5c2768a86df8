"""`init`: the shipped examples, copied where the user is."""

import pytest

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.site import choose_site_file
from dlperf_slurm.errors import InputError
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.provision import copy_examples


def test_every_shipped_matrix_and_site_is_copied(home):
    copied = {path.relative_to(home).as_posix() for path in copy_examples(home)}
    shipped = {
        f"{folder}/{path.name}"
        for folder in ("matrices", "site_configs")
        for path in find_resource_dir(folder).glob("*.toml")
    }
    assert copied == shipped


def test_copied_matrix_can_be_read(home):
    list(copy_examples(home))
    assert read_matrix(home / "matrices/quickstart.toml").matrix.title


def test_copied_site_wins_over_the_shipped_one(home):
    list(copy_examples(home))
    assert choose_site_file("local").absolute() == home / "site_configs/local.toml"


def test_missing_folder_is_made(home):
    list(copy_examples(home / "a" / "b"))
    assert (home / "a/b/matrices/bert.toml").is_file()


def test_file_that_is_there_is_named(home):
    (home / "matrices").mkdir()
    (home / "matrices/bert.toml").write_text("mine", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"nothing was copied: .*matrices/bert\.toml would be over"
    ):
        list(copy_examples(home))


def test_nothing_is_copied_when_one_file_is_there(home):
    (home / "site_configs").mkdir()
    (home / "site_configs/local.toml").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError):
        list(copy_examples(home))
    assert not (home / "matrices").exists()


def test_link_to_nothing_is_a_file_that_is_there(home):
    (home / "matrices").mkdir()
    (home / "matrices/bert.toml").symlink_to(home / "elsewhere")
    with pytest.raises(InputError, match="nothing was copied"):
        list(copy_examples(home))
    assert not (home / "elsewhere").exists()


def test_folder_that_is_a_link_is_not_followed(home):
    (home / "elsewhere").mkdir()
    (home / "matrices").symlink_to("elsewhere")
    with pytest.raises(InputError, match=r"matrices .*link"):
        list(copy_examples(home))
    assert list((home / "elsewhere").iterdir()) == []


def test_folder_that_cannot_be_made_is_named(home):
    (home / "file").touch()
    with pytest.raises(InputError, match=r"^\S*file/here: .*Not a directory"):
        list(copy_examples(home / "file/here"))
