"""Outcomes -> rows per repeat, per rank and per step."""

import pytest
from report_values import list_dtypes, make_cases, make_measured, make_repeat_frame

from dlperf_slurm.results.columns import list_records
from dlperf_slurm.results.detail_frames import RANKS, STEPS, make_rank_frame, make_step_frame
from dlperf_slurm.results.repeats import REPEATS


@pytest.mark.parametrize(
    ("make_frame", "columns"),
    [(make_repeat_frame, REPEATS), (make_rank_frame, RANKS), (make_step_frame, STEPS)],
)
@pytest.mark.parametrize("cases", [[], [make_measured("jax", "1n1g", [], ["x"])], make_cases()])
def test_types_are_the_declared_ones_whatever_was_measured(make_frame, columns, cases):
    frame = make_frame(cases)
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == list_dtypes(columns)


def test_each_planned_repeat_has_a_row_with_its_figures_or_what_is_wrong():
    frame = make_repeat_frame([make_measured("jax", "1n2g", [0.1], ["failed: x", "not submitted"])])
    rows = list_records(frame)
    assert [row["repeat"] for row in rows] == [1, 2, 3]
    assert [row["status"] for row in rows] == ["ok", "failed", "missing"]
    assert [row["problem"] for row in rows] == ["", "failed: x", "not submitted"]
    # 20 steps of 2 x 8 samples, of which the slower rank's take 0.1001 s
    assert rows[0]["samples_per_s"] == pytest.approx(160 / 1.001)
    assert rows[0]["global_batch_size"] == 16
    assert (rows[0]["hosts"], rows[1]["samples_per_s"]) == ("node1", None)


def test_each_rank_has_a_row_with_its_median_step():
    rows = list_records(make_rank_frame([make_measured("jax", "2n2g", [0.1], ["failed: x"])]))
    assert [(row["rank"], row["local_rank"], row["host"]) for row in rows] == [
        (0, 0, "node1"), (1, 1, "node1"), (2, 0, "node2"), (3, 1, "node2"),
    ]  # fmt: skip
    medians = [row["median_step_seconds"] for row in rows]
    assert medians == pytest.approx([0.1, 0.1001, 0.1002, 0.1003])


def test_steps_are_by_repeat_then_rank_then_step():
    cases = [make_measured("jax", "1n2g", [0.1, 0.2]), make_measured("pytorch", "1n1g", [0.3])]
    frame = make_step_frame(cases)
    keys = list(zip(frame.case_id, frame.repeat, frame["rank"], frame.step))
    assert keys == [
        (case.case.case_id, outcome.repeat, rank.rank, step)
        for case in cases
        for outcome in case.outcomes
        for rank in outcome.record.ranks
        for step in range(1, 21)
    ]
    assert frame.seconds[25] == cases[0].outcomes[0].rank_step_seconds[1, 5]
