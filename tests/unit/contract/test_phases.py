"""Phases of records and times of submissions become the table of where a start's time goes."""

import dataclasses

import pytest
from builders import make_manifest, make_outcomes, make_planned_case
from report_values import find_tables, make_repeat_frame, read_column, summarize, write_rows

from dlperf_slurm.contract.host_noise import NoiseReport
from dlperf_slurm.contract.phases import (
    FIRST_STEP,
    FRAMEWORK,
    LOOK,
    RANKS,
    SCRIPT,
    TO_FIRST_STEP,
    WARMUP,
    WINDOW,
    Phase,
)
from dlperf_slurm.jobs.attempts import Sidecars
from dlperf_slurm.results.collect import QUEUE, TO_FIRST_STEP_SUM, CaseOutcomes

SECONDS = {SCRIPT: 1.0, RANKS: 2.0, LOOK: 0.5, FIRST_STEP: 4.0, WARMUP: 8.0, WINDOW: 16.0}
STARTED_AT = "2026-01-01T00:01:00Z"


def make_case(*starts, submitted_at="2026-01-01T00:00:00Z", **changes) -> CaseOutcomes:
    """Make a case with one repeat for each of these seconds by phase; None has no phases."""
    case = make_outcomes(make_planned_case(repeats=len(starts), **changes), [100.0] * len(starts))
    outcomes = []
    for outcome, seconds in zip(case.outcomes, starts):
        phases = tuple(Phase(name, value) for name, value in (seconds or {}).items())
        sidecars = Sidecars(NoiseReport("run", outcome.case_id, outcome.repeat, 1, (), phases))
        record = dataclasses.replace(outcome.record, started_at=STARTED_AT)
        outcomes.append(
            dataclasses.replace(
                outcome, record=record, sidecars=sidecars, submitted_at=submitted_at
            )
        )
    return CaseOutcomes(case.case, tuple(outcomes))


def find_first(case):
    return case.outcomes[0].phases


@pytest.mark.parametrize(
    ("submitted_at", "seconds"),
    [
        # a record's own time begins behind the ranks: 3 s after the script
        ("2026-01-01T00:00:00Z", [57]),
        # by a clock that is ahead of the node's
        ("2026-01-01T00:02:00Z", [0]),
        ("", []),
        ("yesterday", []),
    ],
)
def test_queue_ends_where_the_script_began(submitted_at, seconds):
    start = find_first(make_case({**SECONDS, "unknown": 1.0}, submitted_at=submitted_at))
    assert list(start) == [*[QUEUE] * len(seconds), *SECONDS, TO_FIRST_STEP_SUM]
    assert [value for name, value in start.items() if name == QUEUE] == seconds
    # with its end, and without the rest of the warm-up
    assert start[TO_FIRST_STEP_SUM] == 7.5


def test_record_without_phases_tells_nothing_and_makes_no_table():
    assert find_first(make_case(None)) == {}
    assert find_tables(summarize(make_manifest(), [make_case(None)]), "starts") == []


def test_table_has_medians_over_the_repeats_that_tell():
    case = make_case(SECONDS, None, {**SECONDS, FIRST_STEP: 6.0})
    (table,) = find_tables(summarize(make_manifest(), [case]), "starts")
    assert write_rows(table) == (
        ("pytorch", "1n1g", "1", "57.0", "1.0", "2.0", "0.5", "5.0", "8.5", "8.0"),
    )


def test_columns_are_the_phases_that_any_row_knows():
    case = make_case({**SECONDS, FRAMEWORK: 3.0}, submitted_at="")
    (table,) = find_tables(summarize(make_manifest(), [case]), "starts")
    assert table.header == (
        *("framework", "topology", "cases", "script", "ranks", "look", "framework", "first step"),
        *("script to first step", "warmup"),
    )


def test_cases_of_one_framework_and_topology_are_one_row():
    slow = {**SECONDS, LOOK: 2.5}
    cases = [
        make_case(SECONDS, case_id="a", precision="fp32"),
        make_case(slow, case_id="b", precision="tf32"),
        make_case(SECONDS, case_id="c", topology="1n2g"),
    ]
    (table,) = find_tables(summarize(make_manifest(), cases), "starts")
    columns = [read_column(table, header) for header in ("topology", "cases", "look")]
    rows = [tuple(cell.text for cell in row) for row in zip(*columns)]
    assert rows == [("1n1g", "2", "1.5"), ("1n2g", "1", "0.5")]


def test_each_repeat_has_its_phases_in_the_frame():
    frame = make_repeat_frame([make_case(SECONDS, None)])
    found = [frame[f"phase_{name}_seconds"].tolist() for name in (QUEUE, FIRST_STEP)]
    assert [values[0] for values in found] == [57, 4]
    assert frame.to_first_step_seconds.isna().tolist() == [False, True]
    assert all(f"phase_{name}_seconds" in frame for name in TO_FIRST_STEP)
