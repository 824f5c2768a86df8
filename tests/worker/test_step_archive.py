"""What lies beside a record is folded into one file, and read from either, whoever dies between."""

import json
from dataclasses import replace

import numpy
import pytest
from support.attempts import CASE

from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.step_archive import DETAILS_FILE, pack_sidecars, read_details
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.arrays import parse_array, write_array

LIMITS = {"step_seconds.npy": 10000, "host_noise.json": 1000, "peaks.json": 1000}
SECONDS = numpy.arange(6.0).reshape(2, 3)


@pytest.fixture
def start(tmp_path):
    """Make the folder of a successful start."""
    folder = tmp_path / "a1" / "s0"
    (folder / "nodes").mkdir(parents=True)
    write_array(folder / "step_seconds.npy", SECONDS)
    for name in ("host_noise.json", "nodes/n1.json", "nodes/n2.json", "record.json"):
        (folder / name).write_text(json.dumps({"name": name}))
    write_json(folder / "case.json", CASE)
    (folder / "out").write_text("")
    (folder / "err").write_text("a warning\n")
    return folder


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def read(folder):
    return {name: one.content for name, one in read_details(folder, LIMITS, folder.parent).items()}


FOLDED = [DETAILS_FILE, "err", "record.json"]


def test_what_is_folded_is_read_as_what_was_not(start):
    before = read(start)
    assert set(before) == {"step_seconds.npy", "host_noise.json"}
    for _ in range(2):
        pack_sidecars(start, CASE)
        content = (start / DETAILS_FILE).read_bytes()
        assert list_names(start) == FOLDED
        assert read(start) == before
    # a second time changes nothing
    assert (start / DETAILS_FILE).read_bytes() == content
    found = read_details(start, LIMITS, start.parent)["step_seconds.npy"]
    assert found.where == str(start / DETAILS_FILE / "step_seconds.npy")
    assert (parse_array(*found) == SECONDS).all()
    # by the names of its arrays
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
        patch.setattr("dlperf_slurm.contract.step_archive.remove_file", remove)
        with pytest.raises(KeyboardInterrupt):
            pack_sidecars(start, CASE)
    assert set(list_names(start)) >= (whole | {DETAILS_FILE}) - set(removed)
    assert read(start) == before
    # whoever concludes it again ends what was begun
    pack_sidecars(start, CASE)
    assert list_names(start) == FOLDED
    assert read(start) == before


def test_fold_without_room_leaves_all_as_it_was(start, monkeypatch):
    before = list_names(start)

    def refuse(*arguments, **options):
        raise FileProblem("no room")

    monkeypatch.setattr("dlperf_slurm.contract.step_archive.write_file", refuse)
    pack_sidecars(start, CASE)
    assert list_names(start) == before


@pytest.mark.parametrize("text", ["{", None])
def test_case_that_says_more_than_the_record_or_is_broken_stays(start, text):
    if text is not None:
        (start / "case.json").write_text(text)
    pack_sidecars(start, replace(CASE, seed=CASE.seed + 1))
    assert list_names(start) == ["case.json", *FOLDED]


def test_files_that_are_folded_while_they_are_read_are_found(start, monkeypatch):
    """A reader saw no container, and then no file."""
    from dlperf_slurm.contract import step_archive

    original = step_archive.read_bytes

    def fold_first(path, *arguments):
        monkeypatch.setattr(step_archive, "read_bytes", original)
        pack_sidecars(start, CASE)
        return original(path, *arguments)

    before = read(start)
    monkeypatch.setattr(step_archive, "read_bytes", fold_first)
    assert read(start) == before


def cut_container(start):
    path = start / DETAILS_FILE
    path.write_bytes(path.read_bytes()[:-10])


def link_container(start):
    (start / DETAILS_FILE).rename(start.parent / "elsewhere")
    (start / DETAILS_FILE).symlink_to(start.parent / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "limits", "message"),
    [
        (cut_container, LIMITS, r"details\.npz: .*ZIP"),
        (link_container, LIMITS, "is a link"),
        (
            lambda start: None,
            {**LIMITS, "step_seconds.npy": 100},
            r"details\.npz/step_seconds\.npy: has more than 100 bytes",
        ),
    ],
)
def test_container_that_is_damaged_or_too_large_is_refused_by_name(start, damage, limits, message):
    pack_sidecars(start, CASE)
    damage(start)
    with pytest.raises(FileProblem, match=message):
        read_details(start, limits, start.parent)


def test_file_above_its_limit_is_refused_by_name(start):
    with (start / "step_seconds.npy").open("wb") as file:
        file.truncate(10**12)
    with pytest.raises(FileProblem, match=r"step_seconds\.npy: has more than 10000 bytes"):
        read(start)
