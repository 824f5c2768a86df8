"""What lies beside a record is folded into one file, and read from either, whoever dies between."""

import json
from dataclasses import replace

import numpy
import pytest
from support.attempts import CASE

from dlperf_slurm.contract.details import DETAILS_FILE, fold_details, read_details
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.arrays import parse_array, write_array

LIMITS = {"step_seconds.npy": 10000, "surroundings.json": 1000, "peaks.json": 1000}
SECONDS = numpy.arange(6.0).reshape(2, 3)


@pytest.fixture
def start(tmp_path):
    """The folder of a start that has ended well."""
    folder = tmp_path / "a1" / "s0"
    (folder / "nodes").mkdir(parents=True)
    write_array(folder / "step_seconds.npy", SECONDS)
    for name in ("surroundings.json", "nodes/n1.json", "nodes/n2.json", "record.json"):
        (folder / name).write_text(json.dumps({"name": name}))
    write_json(folder / "case.json", CASE)
    (folder / "out").write_text("")
    (folder / "err").write_text("a warning\n")
    return folder


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def read(folder):
    return {name: one.content for name, one in read_details(folder, LIMITS, folder.parent).items()}


def test_sound_start_leaves_its_record_one_container_and_what_it_printed(start):
    fold_details(start, CASE)
    assert list_names(start) == [DETAILS_FILE, "err", "record.json"]


def test_what_is_folded_is_read_as_what_was_not(start):
    before = read(start)
    assert set(before) == {"step_seconds.npy", "surroundings.json"}
    fold_details(start, CASE)
    assert read(start) == before
    found = read_details(start, LIMITS, start.parent)["step_seconds.npy"]
    assert found.where == str(start / DETAILS_FILE / "step_seconds.npy")
    assert (parse_array(*found) == SECONDS).all()


def test_container_opens_in_numpy_by_the_names_of_its_arrays(start):
    fold_details(start, CASE)
    with numpy.load(str(start / DETAILS_FILE)) as details:
        assert (details["step_seconds"] == SECONDS).all()
        assert json.loads(details["nodes/n2.json"].decode()) == {"name": "nodes/n2.json"}


@pytest.mark.parametrize("removed_files", [0, 1, 3])
def test_death_between_the_fold_and_the_end_loses_nothing(start, monkeypatch, removed_files):
    before = read(start)
    whole = set(list_names(start))
    removed = []

    def remove(path):
        if len(removed) == removed_files:
            raise KeyboardInterrupt
        path.unlink()
        removed.append(path.name)

    with monkeypatch.context() as patch:
        patch.setattr("dlperf_slurm.contract.details.remove_file", remove)
        with pytest.raises(KeyboardInterrupt):
            fold_details(start, CASE)
    assert set(list_names(start)) >= (whole | {DETAILS_FILE}) - set(removed)
    assert read(start) == before
    # whoever concludes it again ends what was begun
    fold_details(start, CASE)
    assert list_names(start) == [DETAILS_FILE, "err", "record.json"]
    assert read(start) == before


def test_fold_without_room_leaves_all_as_it_was(start, monkeypatch):
    before = list_names(start)

    def refuse(*arguments, **options):
        raise FileProblem("no room")

    monkeypatch.setattr("dlperf_slurm.contract.details.write_file", refuse)
    fold_details(start, CASE)
    assert list_names(start) == before


def test_second_fold_changes_nothing(start):
    fold_details(start, CASE)
    before = (start / DETAILS_FILE).read_bytes()
    fold_details(start, CASE)
    assert (start / DETAILS_FILE).read_bytes() == before


def test_case_that_says_more_than_the_record_stays(start):
    fold_details(start, replace(CASE, seed=CASE.seed + 1))
    assert "case.json" in list_names(start)


def test_broken_case_stays(start):
    (start / "case.json").write_text("{")
    fold_details(start, CASE)
    assert list_names(start) == ["case.json", DETAILS_FILE, "err", "record.json"]


def test_files_that_are_folded_while_they_are_read_are_found(start, monkeypatch):
    """A reader saw no container, and then no file."""
    from dlperf_slurm.contract import details

    original = details.read_bytes

    def fold_first(path, *arguments):
        monkeypatch.setattr(details, "read_bytes", original)
        fold_details(start, CASE)
        return original(path, *arguments)

    before = read(start)
    monkeypatch.setattr(details, "read_bytes", fold_first)
    assert read(start) == before


def test_damaged_container_is_refused_by_name(start):
    fold_details(start, CASE)
    path = start / DETAILS_FILE
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FileProblem, match=r"details\.npz: .*ZIP"):
        read(start)


def test_member_above_its_limit_is_refused_by_name(start):
    fold_details(start, CASE)
    limits = dict(LIMITS, **{"step_seconds.npy": 100})
    with pytest.raises(
        FileProblem, match=r"details\.npz/step_seconds\.npy: has more than 100 bytes"
    ):
        read_details(start, limits, start.parent)


def test_file_above_its_limit_is_refused_by_name(start):
    with (start / "step_seconds.npy").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(FileProblem, match=r"step_seconds\.npy: has more than 10000 bytes"):
        read(start)


def test_link_in_the_place_of_the_container_is_not_followed(start):
    fold_details(start, CASE)
    (start / DETAILS_FILE).rename(start.parent / "elsewhere")
    (start / DETAILS_FILE).symlink_to(start.parent / "elsewhere")
    with pytest.raises(FileProblem, match="is a link"):
        read(start)
