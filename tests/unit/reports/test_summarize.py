"""Outcomes -> tables: every expected figure is computed by hand in a comment."""

import statistics

import pytest
from builders import make_manifest, make_outcomes, make_planned_case
from report_values import find_tables, list_rows, read_column, summarize, write_rows

from dlperf_slurm.contract.record import BatchTrial
from dlperf_slurm.jobs.manifest import IMPORT_SITE
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.stats.median import Interval

PROBLEM = "failed: rank 1 on node1: ValueError: x"


def summarize_cases(*cases) -> Summary:
    return summarize(make_manifest(), cases)


def make_table(*cases) -> Table:
    (table,) = find_tables(summarize_cases(*cases), "throughput")
    return table


RATES = [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]


def make_curve(samples_by_topology, **changes):
    """Return the rows of cases on these topologies with these throughputs."""
    return list_rows(
        *(
            make_outcomes(
                make_planned_case(topology, **changes), samples, [PROBLEM] * (not samples)
            )
            for topology, samples in samples_by_topology.items()
        )
    )


# the rates of each topology, and what each case has: the figure is the median of its repeats (where
# the mean would be 140), speedup the ratio of medians, efficiency that per device of the baseline
CURVES = [
    ({"1n1g": [100.0, 90.0, 230.0]}, "1n1g", [1.0], [1.0]),
    (
        {"1n1g": [90.0, 100.0, 110.0], "1n8g": [760.0, 780.0, 900.0], "2n8g": [1500.0] * 3},
        "1n1g", [1.0, 7.8, 15.0], [1.0, 0.975, 0.9375],
    ),
    # the smallest that was measured
    (
        {"1n1g": [], "1n8g": [800.0] * 3, "2n8g": [1500.0] * 3},
        "1n8g", [None, 1.0, 1.875], [None, 1.0, 0.9375],
    ),
    # the fewest devices whatever the nodes, then the fewest nodes
    ({"1n8g": [8.0], "2n1g": [2.0]}, "2n1g", [4.0, 1.0], [1.0, 1.0]),
    ({"4n1g": [4.0], "1n4g": [4.0], "2n2g": [4.0]}, "1n4g", [1.0] * 3, [1.0] * 3),
    ({"1n1g": [], "1n2g": []}, "", [None] * 2, [None] * 2),
]  # fmt: skip


@pytest.mark.parametrize(("samples", "baseline", "speedups", "efficiencies"), CURVES)
def test_speedup_and_efficiency_are_over_the_smallest_topology(
    samples, baseline, speedups, efficiencies
):
    rows = make_curve(samples)
    medians = [statistics.median(own) if own else None for own in samples.values()]
    assert [row.samples_per_s for row in rows] == medians
    assert {row.baseline for row in rows} == {baseline}
    for name, wanted in (("speedup", speedups), ("weak_scaling_efficiency", efficiencies)):
        found = [getattr(row, name) for row in rows]
        assert [None if x is None else round(x, 6) for x in found] == wanted


def test_repeats_with_the_same_problem_share_a_footnote():
    summary = summarize_cases(
        make_outcomes(make_planned_case(), [], [PROBLEM, "not submitted", PROBLEM])
    )
    assert summary.footnotes == (
        f"pytorch-resnet50-1n1g-bs8-fp32 repeat 1, 3: {PROBLEM}",
        "pytorch-resnet50-1n1g-bs8-fp32 repeat 2: not submitted",
    )


@pytest.mark.parametrize(
    ("problems", "word"),
    [
        (["not submitted"], "missing"),
        (["not submitted", PROBLEM], "failed"),
        (["invalid record: ranks [1] of 2 are missing in the record"], "invalid"),
        ([PROBLEM, "out of memory: rank 0"], "OOM"),
    ],
)
def test_case_without_a_sound_repeat_has_a_word_for_it(problems, word):
    (row,) = list_rows(make_outcomes(make_planned_case(), [], problems))
    assert (row.problem, row.samples_per_s, row.speedup) == (word, None, None)


def test_sizes_of_a_ladder_that_were_too_large_are_footnoted():
    trials = tuple(BatchTrial(size, size > 8, 0, 1.0) for size in (16, 12, 8))
    planned = make_planned_case(batch_size_per_device="16 -> 12 -> 8", repeats=6)
    summary = summarize_cases(make_outcomes(planned, [1.0] * 6, batch_trials=trials))
    assert summary.footnotes == (
        "pytorch resnet50 1n1g fp32: batch size 16: out of memory",
        "pytorch resnet50 1n1g fp32: batch size 12: out of memory",
    )
    (table,) = find_tables(summary, "throughput")
    assert [cell.text for cell in read_column(table, "batch size")] == ["8"]


def test_table_of_the_largest_batch_names_the_search_and_each_cell_its_size():
    planned = make_planned_case(batch_size_per_device="max", repeats=6)
    table = make_table(make_outcomes(planned, [1.0] * 6))
    assert (table.title, table.header[2], write_rows(table)[0][2]) == (
        "ResNet-50: fp32, batch size max per device", "batch size", "8",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("published", "says"),
    [
        (101.9, None),
        (0.0, None),
        (103.0, "the median is 103.00, 3.0 % above the value in this table"),
        (97.0, "the median is 97.00, 3.0 % below the value in this table"),
    ],
)
def test_figure_by_the_publishers_rule_is_footnoted_when_it_differs(published, says):
    case = make_outcomes(
        make_planned_case(repeats=6),
        [100.0] * 6,
        publisher_rule="mean of epochs",
        publisher_samples_per_s=published,
    )
    rule = "pytorch-resnet50-1n1g-bs8-fp32: computed by the publisher's own rule (mean of epochs)"
    assert summarize_cases(case).footnotes == ((f"{rule}, {says}",) if says else ())


def test_footnotes_are_numbered_across_tables():
    planned = [
        make_planned_case(topology, repeats=6, notes=(note,), precision=precision)
        for topology, note, precision in (
            ("1n1g", "a", "fp32"), ("1n2g", "a", "fp32"), ("1n1g", "b", "amp-bf16"),
        )
    ]  # fmt: skip
    summary = summarize_cases(*(make_outcomes(case, [1.0] * 6) for case in planned))
    tables = find_tables(summary, "throughput")
    marks = [[cell.notes for cell in read_column(table, "images/s")] for table in tables]
    assert (summary.footnotes, marks) == (("a", "b"), [[(1,), (1,)], [(2,)]])


def test_model_precision_and_batch_size_each_have_their_table():
    axes = ({}, {"precision": "amp-bf16"}, {"batch_size_per_device": 16}, {"model": "bert"})
    summary = summarize_cases(*(make_outcomes(make_planned_case(**own), [1.0]) for own in axes))
    assert [table.title for table in find_tables(summary, "throughput")] == [
        "ResNet-50: fp32, batch size 8 per device",
        "ResNet-50: amp-bf16, batch size 8 per device",
        "ResNet-50: fp32, batch size 16 per device",
        "BERT-base: fp32, batch size 8 per device",
    ]


def test_rows_are_topologies_from_the_smallest_on():
    cases = [make_outcomes(make_planned_case(t), [1.0]) for t in ("10n1g", "1n8g", "2n1g")]
    assert [cell.text for cell in read_column(make_table(*cases), "topology")] == [
        "1n8g", "2n1g", "10n1g",
    ]  # fmt: skip


def test_axis_that_does_not_vary_stands_in_the_title():
    planned = make_planned_case(clip_global_norm=True, memory_format="channels_last")
    table = make_table(make_outcomes(planned, [1.0]))
    assert table.title == "ResNet-50: fp32, batch size 8 per device, channels_last, clip"


@pytest.mark.parametrize("problems", [[], [PROBLEM]])
def test_run_is_complete_when_each_planned_repeat_is_sound(problems):
    sound = 3 - len(problems)
    summary = summarize_cases(
        make_outcomes(make_planned_case(repeats=3), [1.0] * sound, problems),
        make_outcomes(make_planned_case("2n8g", repeats=3, reason="too large")),
    )
    found = (summary.ok_repeats, summary.planned_repeats, summary.is_complete)
    assert found == (sound, 3, not problems)


@pytest.mark.parametrize(
    ("changes", "blocks", "is_within_one"),
    [({}, 1, True), ({}, 6, False), ({"site_name": IMPORT_SITE}, 1, False)],
)
def test_method_tells_of_one_array_job_where_there_was_one(changes, blocks, is_within_one):
    cases = [make_outcomes(make_planned_case(repeats=6, blocks=blocks), RATES)]
    manifest = make_manifest(cases=tuple(one.case for one in cases), **changes)
    method = summarize(manifest, cases).method
    assert ("in one array job" in method) == is_within_one
    assert ("medians of these blocks" in method) == (blocks > 1)


def test_range_of_few_blocks_is_of_their_medians():
    planned = make_planned_case(repeats=6, blocks=2)
    (cell,) = read_column(make_table(make_outcomes(planned, RATES)), "images/s")
    # of 100, 102, 104 and of 101, 103, 105
    assert cell.range == Interval(102.0, 103.0)
