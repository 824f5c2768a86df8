"""Ratios of cases, and which case is the baseline of which."""

import pytest
from axis_samples import AXIS_SAMPLES
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from outcome_builders import RATES, change_outcomes, scale
from report_values import find_tables, list_rows, read_marks, summarize
from support.problems import assert_problem

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.record import Epoch
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.results.ratios import choose_reference, compute_ratio
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval

OTHERS = {
    "model": "bert",
    **{axis: AXIS_SAMPLES[axis] for axis in AXES if axis not in ("topology", "mode")},
}


def make(rate: float = 0.0, epochs=(), **changes):
    """Make a case with one repeat of this throughput, or a failed one without it."""
    topology = changes.pop("topology", "1n1g")
    case_id = f"{topology} {sorted(map(str, changes.items()))}"
    planned = make_planned_case(topology, case_id=case_id, epochs=len(epochs), **changes)
    samples = [rate] if rate else []
    batches = [10.0 / rate] if rate and planned.axes.mode == INFER else []
    return make_outcomes(planned, samples, [] if rate else ["failed: x"], batches, epochs=epochs)


def list_ratios(name, *cases):
    return [getattr(row, name) for row in list_rows(*cases)]


def test_ratio_is_of_medians_and_its_interval_of_all_pairs():
    interval = compute_ratio_interval(RATES, scale(RATES, 2.0))
    assert compute_ratio(RATES, scale(RATES, 2.0)) == (2.0, interval.low, interval.high)


def make_curve(topologies, repeats):
    """Cases of these topologies, each of twice the throughputs of the one before."""
    planned = [make_planned_case(name, case_id=name, repeats=repeats) for name in topologies]
    rates = [100.0 + 0.1 * number for number in range(repeats)]
    return [make_outcomes(case, scale(rates, 2.0**i)) for i, case in enumerate(planned)]


def test_intervals_of_a_curve_hold_together():
    cases = make_curve(["1n1g", "1n2g", "1n4g"], 7)
    rates = [list(case.units) for case in cases]
    rows = list_rows(*cases)
    # two of them: each at 97.5 %
    together = compute_ratio_interval(rates[0], rates[2], 0.975)
    assert (rows[2].speedup_low, rows[2].speedup_high) == (together.low, together.high)
    efficiency = (rows[2].weak_scaling_efficiency_low, rows[2].weak_scaling_efficiency_high)
    assert efficiency == (together.low / 4, together.high / 4)
    alone = compute_ratio_interval(rates[0], rates[2])
    _, row = list_rows(cases[0], cases[2])
    assert (row.speedup_low, row.speedup_high) == (alone.low, alone.high)
    assert alone.low > together.low


def test_curve_with_more_points_takes_more_repeats_and_says_so():
    cases = make_curve(["1n1g", "1n2g", "1n4g", "1n8g", "2n8g"], 7)
    assert {row.speedup_low for row in list_rows(*cases)} == {None}
    says = ("95 % interval", "its baseline need 8 each", "all 4 speedups of a scaling curve")
    assert_problem(list_cases_notes(cases)[1], says=says)


def test_strong_scaling_is_against_its_own_smallest_topology():
    """Of a fixed global batch size; weak scaling beside it has its own, and none has both."""
    cases = [make(rate, topology=t, batch_size_per_device=8)
             for t, rate in (("1n1g", 10.0), ("1n2g", 18.0))]  # fmt: skip
    cases += [make(rate, topology=t, batch_size_per_device=size, global_batch_size=32)
              for t, rate, size in (("1n2g", 20.0, 16), ("1n4g", 30.0, 8))]  # fmt: skip
    assert list_ratios("baseline", *cases) == ["1n1g", "1n1g", "1n2g", "1n2g"]
    assert list_ratios("speedup", *cases) == [1.0, 1.8, 1.0, 1.5]
    assert list_ratios("weak_scaling_efficiency", *cases) == [1.0, 0.9, None, None]
    assert list_ratios("strong_scaling_efficiency", *cases) == [None, None, 1.0, 0.75]
    weak, strong = find_tables(summarize(make_manifest(), cases), "throughput")
    assert "batch size 8 per device" in weak.title
    assert "batch size 32 (global)" in strong.title


def test_topology_that_failed_takes_no_part_in_a_curve():
    *measured, failed = make_curve(["1n1g", "1n2g", "1n4g"], 6)
    failed = make_outcomes(failed.case, [], ["failed: x"] * 6)
    assert list_rows(*measured, failed)[1].speedup_low is not None


def test_scaling_over_another_batch_size_is_noted():
    search = {"batch_size_per_device": "max", "repeats": 1}
    cases = [
        make_outcomes(make_planned_case(name, case_id=name, **search), [100.0], found_batch_size=n)
        for name, n in (("1n1g", 32), ("1n2g", 16))
    ]
    summary = summarize(make_manifest(), cases)
    (table,) = find_tables(summary, "throughput")
    marks = [read_marks(summary, row) for row in table.rows]
    (note,) = (text for text in set(marks[1]) - set(marks[0]) if "batch size" in text)
    assert_problem(note, says=("batch sizes", "16 and 32"))
    assert note in list_cases_notes(cases)[1]


def list_cases_notes(cases):
    return [row["notes"] for row in read_csv(summarize(make_manifest(), cases))]


def test_time_to_train_is_over_blocks():
    planned = make_planned_case(case_id="a", epochs=1, repeats=4, blocks=2)
    seconds = [10.0, 20.0, 30.0, 60.0]
    case = change_outcomes(
        make_outcomes(planned, [100.0] * 4),
        lambda one: {"record": {"epochs": (make_epoch(seconds[one.repeat - 1]),)}},
    )
    (row,) = list_rows(case)
    # neighbours are in different blocks: 10 and 30, 20 and 60
    assert row.train_seconds == 30.0


def test_full_precision_comes_before_its_truncation():
    assert choose_reference({"tf32", "fp32", "amp-fp16"}) == "fp32"
    assert choose_reference({"tf32", "amp-fp16"}) == "tf32"
    assert choose_reference({"amp-fp16"}) == ""


SMALL, LARGE = {"batch_size_per_device": 8}, {"batch_size_per_device": 16}
AMP = {"precision": "amp-fp16"}


@pytest.mark.parametrize(
    ("column", "cases", "ratios"),
    [
        # the same topology and compiler
        (
            "precision_speedup",
            [
                (base * gain * factor, topology, {"compiler": compiler, **precision})
                for precision, factor in ((AMP, 3), ({}, 1))
                for compiler, gain in (("none", 1), ("xla", 1.5))
                for topology, base in (("1n1g", 10), ("1n2g", 16))
            ],
            [3] * 4 + [1] * 4,
        ),
        # the only other batch size, or each of several; in inference its own
        ("precision_speedup", [(30, "1n1g", {**AMP, **LARGE}), (10, "1n1g", {})], [3, 1]),
        (
            "precision_speedup",
            [(20, "1n1g", {**AMP, **SMALL}), (40, "1n1g", {**AMP, **LARGE}), (10, "1n1g", LARGE)],
            [None, 4, 1],
        ),
        (
            "precision_speedup",
            [(20, "1n1g", {**AMP, **LARGE, "mode": INFER}), (10, "1n1g", {"mode": INFER})],
            [None, 1],
        ),
        ("precision_speedup", [(10, "1n1g", {}), (20, "1n2g", {})], [None, None]),
        # the same case with its batch on the device
        (
            "relative_to_device_data",
            [
                (10, "1n1g", {}),
                (6, "1n1g", {"data": "zmq", "data_workers": 5}),
                (30, "1n1g", {"compiler": "xla"}),
                (15, "1n1g", {"compiler": "xla", "data": "host"}),
                (1, "1n1g", {"data": "host", "optimizer": "adamw"}),
            ],
            [1, 0.6, 1, 0.5, None],
        ),
    ],
)
def test_ratio_is_over_its_baseline(column, cases, ratios):
    made = [make(float(rate), topology=topology, **axes) for rate, topology, axes in cases]
    assert list_ratios(column, *made) == ratios


def test_speedup_is_over_a_case_that_is_alike_in_every_other_axis():
    cases = [make(10.0)]
    for axis, value in OTHERS.items():
        other = {axis: value}
        cases += [make(50.0, **other), make(200.0, topology="1n2g", **other)]
    _, *speedups = list_ratios("speedup", *cases)
    found = dict(zip(OTHERS, zip(speedups[::2], speedups[1::2])))
    assert found == dict.fromkeys(OTHERS, (1.0, 4.0))


def make_epoch(seconds):
    """Make the last epoch of a training that took this many seconds."""
    return Epoch(1, 0.5, 1.0, 1.0, training_seconds=1.0, elapsed_seconds=seconds)


def make_training(precision, size, seconds, **changes):
    epochs = (make_epoch(seconds),)
    return make(10.0, precision=precision, batch_size_per_device=size, epochs=epochs, **changes)


@pytest.mark.parametrize(
    ("cases", "speedups"),
    [
        # at the same batch size, else with the only other one
        ([("fp32", 96, 60.0), ("fp32", 192, 40.0), ("amp-fp16", 192, 20.0)], [1.0, 1.0, 2.0]),
        ([("fp32", 96, 60.0), ("amp-fp16", 192, 20.0)], [1.0, 3.0]),
        ([("fp32", 96, 60.0), ("fp32", 128, 50.0), ("amp-fp16", 192, 20.0)], [1.0, 1.0, None]),
    ],
)
def test_time_to_train_is_compared_at_the_same_or_the_only_batch_size(cases, speedups):
    assert list_ratios("train_speedup", *(make_training(*case) for case in cases)) == speedups
