"""`init`: the shipped examples, copied where the user is."""

import pytest
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.site import choose_site_file
from dlperf_slurm.errors import InputError
from dlperf_slurm.matrix.file import make_schema, read_matrix
from dlperf_slurm.provision import copy_examples


def copy(directory):
    return copy_examples(directory, {"matrices": make_schema("matrix"), "site_configs": {}})


def test_every_shipped_matrix_and_site_is_copied_and_used(home):
    copied = {path.relative_to(home).as_posix() for path in copy(home)}
    shipped = {
        f"{folder}/{path.name}"
        for folder in ("matrices", "site_configs")
        for path in find_resource_dir(folder).glob("*.toml")
    }
    assert copied == shipped | {"matrices/schema.json", "site_configs/schema.json"}
    path = home / "matrices/quickstart.toml"
    # by which editors find the keys
    assert path.read_text(encoding="utf-8").startswith("#:schema ./schema.json\n")
    assert read_matrix(path).matrix.title
    # before the shipped one
    assert choose_site_file("local").absolute() == home / "site_configs/local.toml"


def test_missing_folder_is_made(home):
    list(copy(home / "a" / "b"))
    assert (home / "a/b/matrices/bert.toml").is_file()


@pytest.mark.parametrize("make", [lambda path: path.touch(), lambda path: path.symlink_to("x")])
def test_nothing_is_copied_where_one_file_is_there(home, make):
    (home / "site_configs").mkdir()
    make(home / "site_configs/local.toml")
    with pytest.raises(InputError) as caught:
        list(copy(home))
    assert_problem(caught.value, says=("nothing was copied", home / "site_configs/local.toml"))
    assert sorted(path.name for path in home.iterdir()) == ["site_configs"]


def test_folder_that_is_a_link_is_not_followed(home):
    (home / "elsewhere").mkdir()
    (home / "matrices").symlink_to("elsewhere")
    with pytest.raises(InputError, match=r"matrices .*link"):
        list(copy(home))
    assert list((home / "elsewhere").iterdir()) == []


def test_folder_that_cannot_be_made_is_named(home):
    (home / "file").touch()
    with pytest.raises(InputError, match=r"^\S*file/here: .*Not a directory"):
        list(copy(home / "file/here"))
