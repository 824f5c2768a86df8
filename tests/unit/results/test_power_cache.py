"""What a plan's repeats can tell is simulated once, and read from the user's cache after that."""

import pytest

from dlperf_slurm.config.folders import find_cache_dir
from dlperf_slurm.results import power_cache
from dlperf_slurm.results.power_cache import POWERS, Power, get_power

QUESTION = (7, 0.01, 0.05, 4, False)


@pytest.fixture
def simulations(monkeypatch):
    """Each simulation that was asked for; its answer is 0.9, and 0.02."""
    asked = []
    monkeypatch.setattr(power_cache, "compute_power", lambda *numbers: asked.append(numbers) or 0.9)
    monkeypatch.setattr(power_cache, "compute_detectable_slowdown", lambda *numbers: 0.02)
    return asked


def test_same_question_is_simulated_once(simulations):
    assert get_power(*QUESTION) == get_power(*QUESTION) == Power(0.9, 0.02)
    assert simulations == [QUESTION]


def test_other_numbers_are_another_question(simulations):
    for i, other in enumerate([8, 0.02, 0.04, 5, True]):
        get_power(*QUESTION[:i], other, *QUESTION[i + 1 :])
    get_power(*QUESTION)
    assert len(simulations) == 6
    get_power(*QUESTION)
    assert len(simulations) == 6


def test_entry_that_is_damaged_is_made_anew(simulations):
    get_power(*QUESTION)
    (entry,) = (find_cache_dir() / POWERS).iterdir()
    entry.write_bytes(b"x" * 99)
    assert get_power(*QUESTION) == get_power(*QUESTION) == Power(0.9, 0.02)
    assert len(simulations) == 2


def test_cache_that_cannot_be_written_changes_no_answer(simulations, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    assert get_power(*QUESTION) == Power(0.9, 0.02)
    assert len(simulations) == 1


def test_cache_does_not_grow_for_ever(simulations, monkeypatch):
    monkeypatch.setattr(power_cache, "MOST_RESULTS", 2)
    for repeats in (6, 7, 8):
        get_power(repeats, *QUESTION[1:])
    assert len(list((find_cache_dir() / POWERS).iterdir())) == 2
