"""What a plan's repeats can tell is simulated once, and read from the user's cache after that."""

import json

import pytest

from dlperf_slurm.results import power_cache
from dlperf_slurm.results.power_cache import Power, find_answers, find_power

QUESTION = (7, 0.01, 0.05, 4)


@pytest.fixture
def simulations(monkeypatch):
    """Each simulation that was asked for; its answer is 0.9, and 0.02."""
    asked = []
    monkeypatch.setattr(power_cache, "compute_power", lambda *numbers: asked.append(numbers) or 0.9)
    monkeypatch.setattr(power_cache, "find_detectable", lambda *numbers: 0.02)
    return asked


def test_same_question_is_simulated_once(simulations):
    assert find_power(*QUESTION) == find_power(*QUESTION) == Power(0.9, 0.02)
    assert simulations == [QUESTION]


def test_other_numbers_are_another_question(simulations):
    for question in (QUESTION, (8, *QUESTION[1:]), (*QUESTION[:3], 5), (7, 0.02, 0.05, 4)):
        find_power(*question)
    assert len(simulations) == 4
    find_power(*QUESTION)
    assert len(simulations) == 4


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"7 0.01 0.05 4": [2, NaN]}', '{"7 0.01 0.05 4": 1}']
)
def test_cache_that_is_damaged_is_made_anew(simulations, text):
    find_answers().parent.mkdir(parents=True)
    find_answers().write_text(text)
    assert find_power(*QUESTION) == Power(0.9, 0.02)
    assert json.loads(find_answers().read_text()) == {"7 0.01 0.05 4": [0.9, 0.02]}


def test_cache_that_cannot_be_written_changes_no_answer(simulations, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    assert find_power(*QUESTION) == Power(0.9, 0.02)
    assert len(simulations) == 1


def test_cache_does_not_grow_for_ever(simulations, monkeypatch):
    monkeypatch.setattr(power_cache, "_MOST_KEPT", 2)
    for repeats in (6, 7, 8):
        find_power(repeats, *QUESTION[1:])
    assert len(json.loads(find_answers().read_text())) == 1
