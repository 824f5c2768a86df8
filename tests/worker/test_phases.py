"""Points of time become phases, one behind the other, that add up."""

import time

import pytest

from dlperf_slurm.contract.phases import (
    FIRST_STEP,
    LAUNCHER,
    MEANINGS,
    PYTHON,
    RANKS,
    SCRIPT,
    TO_FIRST_STEP,
    WARMUP,
)
from dlperf_slurm.worker.phases import (
    BEGUN_VARIABLE,
    LAUNCHED_VARIABLE,
    ImportTimer,
    Phases,
    find_process_start,
)


def test_phases_add_up_to_the_time_since_the_script_began():
    begun = find_process_start() - 5
    phases = Phases({BEGUN_VARIABLE: str(begun), LAUNCHED_VARIABLE: str(begun + 2)})
    phases.end(RANKS)
    ended = time.time()
    listed = phases.list_phases({})
    assert [one.name for one in listed] == [SCRIPT, LAUNCHER, PYTHON, RANKS]
    assert [one.seconds for one in listed[:2]] == pytest.approx([2, 3], abs=0.05)
    assert sum(one.seconds for one in listed) == pytest.approx(ended - begun, abs=0.05)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {BEGUN_VARIABLE: "x", LAUNCHED_VARIABLE: ""},
        # a launcher or container that keeps only one of them
        {BEGUN_VARIABLE: str(time.time() - 1000)},
    ],
)
def test_without_a_script_phases_begin_with_the_process(environ):
    (phase,) = Phases(environ).list_phases({})
    assert phase.name == PYTHON
    assert phase.seconds < time.time() - find_process_start() + 0.05


def test_part_of_a_phase_is_named_and_the_rest_keeps_its_name():
    phases = Phases({})
    time.sleep(0.05)
    phases.end(WARMUP)
    whole = phases.list_phases({})[-1].seconds
    *_, first, rest = phases.list_phases({WARMUP: (FIRST_STEP, 0.02)})
    assert (first.name, first.seconds, rest.name) == (FIRST_STEP, 0.02, WARMUP)
    assert rest.seconds == pytest.approx(whole - 0.02)
    assert (*TO_FIRST_STEP, WARMUP) == tuple(MEANINGS)[: len(TO_FIRST_STEP) + 1]


@pytest.mark.parametrize("step_seconds", [3600, -3600])
def test_clock_that_is_set_changes_no_phase(monkeypatch, step_seconds):
    phases = Phases({})
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + step_seconds)
    time.sleep(0.05)
    phases.end("session")
    assert 0.05 <= phases.list_phases({})[-1].seconds < 60


def test_clock_that_was_set_back_leaves_no_negative_phase():
    ahead = time.time() + 3600
    listed = Phases({BEGUN_VARIABLE: str(ahead), LAUNCHED_VARIABLE: str(ahead)}).list_phases({})
    assert all(one.seconds >= 0 for one in listed)


def test_imports_are_timed_once_where_one_leads_to_another(tmp_path, monkeypatch):
    (tmp_path / "outer_of_two.py").write_text("import inner_of_two\n")
    (tmp_path / "inner_of_two.py").write_text("import time\ntime.sleep(0.1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    start = time.perf_counter()
    with ImportTimer() as imports:
        import outer_of_two  # noqa: F401
    assert 0.1 <= imports.seconds <= time.perf_counter() - start
    before = __import__
    with pytest.raises(ImportError), ImportTimer():
        import no_such_module_of_any_kind  # noqa: F401
    assert __import__ is before
