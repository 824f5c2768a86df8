"""What cases took of memory and energy, from telemetry whose figures are easy to reckon with."""

import dataclasses

import pytest
from builders import (
    make_case,
    make_manifest,
    make_outcomes,
    make_planned_case,
    make_record,
)
from outcome_builders import make_telemetry
from report_values import find_tables, list_rows, read_marks, summarize, write_rows
from support.problems import assert_problem

from dlperf_slurm.contract.record import HOST, Epoch
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.resource_usage import WITH_VALIDATIONS

# of a record in 4 s: 8 samples x 2 devices x 10 steps
SAMPLES_PER_S = 40.0


GPUS = (make_telemetry(0), make_telemetry(1))


def make_outcomes_of(*telemetry, device="cuda", **record_changes) -> CaseOutcomes:
    """Make a repeat of 1n2g for each of these telemetries."""
    planned = make_planned_case("1n2g", repeats=len(telemetry))
    records = [
        make_record(make_case(device=device, repeat=n), 4.0, telemetry=one, **record_changes)
        for n, one in enumerate(telemetry, start=1)
    ]
    outcomes = (Outcome(planned.case_id, n, record, "") for n, record in enumerate(records))
    return CaseOutcomes(planned, tuple(outcomes))


def make_row(*telemetry, **changes):
    (row,) = list_rows(make_outcomes_of(*telemetry, **changes))
    return row


def make_tables(*cases) -> list[Table]:
    return find_tables(summarize(make_manifest(), cases), "resources")


def list_footnotes(*telemetry, **changes):
    summary = summarize(make_manifest(), [make_outcomes_of(*telemetry, **changes)])
    (table,) = find_tables(summary, "resources")
    return read_marks(summary, table.rows[0])


SLOW = (GPUS[0], make_telemetry(1, least_clock_mhz=700.0))
IDLE = [(make_telemetry(0, mean_power_watts=watts), GPUS[1]) for watts in (100.0, 200.0, 900.0)]
HOST_BESIDE = (make_telemetry(HOST, mean_clock_mhz=100.0, mean_utilization=0.1), *GPUS)
CPUS = (make_telemetry(HOST, mean_power_watts=200.0, mean_clock_mhz=0.0, least_clock_mhz=0.0),)


@pytest.mark.parametrize(
    ("telemetry", "device", "figures"),
    [
        ([GPUS], "cuda", {"power_watts": 600, "samples_per_joule": SAMPLES_PER_S / 600}),
        # medians over repeats
        (IDLE, "cuda", {"power_watts": 500, "samples_per_joule": SAMPLES_PER_S / 500}),
        # a repeat without telemetry leaves the others
        ([(), GPUS], "cuda", {"power_watts": 600}),
        # unless all devices tell
        ([GPUS[:1]], "cuda", {"power_watts": None, "samples_per_joule": None}),
        ([(GPUS[0], make_telemetry(1, mean_power_watts=0.0))], "cuda", {"power_watts": None}),
        # a host is no device beside GPUs, and is one where there are only CPUs
        ([HOST_BESIDE], "cuda", {"power_watts": 600, "clock_mhz": 1400, "utilization": 0.9}),
        ([CPUS], "cpu", {"power_watts": 200, "clock_mhz": None, "least_clock_mhz": None}),
        # the lowest of any device in any repeat
        ([GPUS, SLOW], "cuda", {"least_clock_mhz": 700}),
    ],
)
def test_use_is_that_of_all_devices(telemetry, device, figures):
    row = make_row(*telemetry, device=device)
    found = {name: getattr(row, name) for name in figures}
    assert found == pytest.approx(figures)


def test_power_of_a_training_with_validations_tells_nothing_of_samples_per_joule():
    epochs = (Epoch(1, 0.5, 1.0, 1.0, training_seconds=4.0, elapsed_seconds=6.0),)
    row = make_row(GPUS, epochs=epochs)
    assert (row.power_watts, row.samples_per_joule) == (600, None)
    assert list_footnotes(GPUS, epochs=epochs) == [WITH_VALIDATIONS]
    assert list_footnotes((), epochs=epochs) == []


def test_peak_memory_is_the_most_of_any_rank_in_any_repeat():
    outcomes = make_outcomes_of(GPUS, GPUS, GPUS)
    first = outcomes.outcomes[0]
    one, other = first.record.ranks
    ranks = (one, dataclasses.replace(other, peak_memory_bytes=2**30))
    most = dataclasses.replace(first, record=dataclasses.replace(first.record, ranks=ranks))
    (row,) = list_rows(dataclasses.replace(outcomes, outcomes=(most, *outcomes.outcomes[1:])))
    assert row.peak_memory_bytes == 2**30


def test_what_held_clocks_down_is_named_with_the_devices():
    hot = make_telemetry(1, throttle_reasons=("power cap", "thermal slowdown by hardware"))
    capped = make_telemetry(0, throttle_reasons=("power cap",))
    (text,) = list_footnotes((capped, hot), (capped, GPUS[1]))
    says = ("power cap (node1 device 0, node1 device 1)", "hardware (node1 device 1)")
    assert_problem(text, key="clocks were throttled", says=says)


def test_many_devices_are_counted():
    reasons = ("power cap",)
    gpus = tuple(make_telemetry(device, throttle_reasons=reasons) for device in range(8))
    (text,) = list_footnotes(gpus)
    assert text.endswith("power cap (8 of 8 devices)")


def test_sampler_that_failed_is_named_with_its_repeats():
    texts = list_footnotes((), (), platform={"telemetry": "node1: the sampling process died"})
    (text,) = texts
    assert_problem(text, says=("repeat 1, 2", "node1: the sampling process died"))


def test_logs_that_tell_neither_memory_nor_power_have_no_table():
    outcomes = make_outcomes_of(())
    (outcome,) = outcomes.outcomes
    ranks = tuple(dataclasses.replace(r, peak_memory_bytes=0) for r in outcome.record.ranks)
    changed = dataclasses.replace(outcome, record=dataclasses.replace(outcome.record, ranks=ranks))
    cases = [dataclasses.replace(outcomes, outcomes=(changed,))]
    assert make_tables(*cases) == []


def test_case_without_a_record_has_no_row():
    failed = make_outcomes(make_planned_case("2n2g"), (), ["failed: x"])
    (table,) = make_tables(make_outcomes_of(GPUS), failed)
    assert [row[0].text for row in table.rows] == ["pytorch-resnet50-1n2g-bs8-fp32"]


def test_table_has_one_column_per_known_figure():
    (table,) = make_tables(make_outcomes_of(GPUS))
    assert table.header == ("case", "peak MiB", "busy %", "W", "images/J", "MHz", "least MHz")
    expected = ("pytorch-resnet50-1n2g-bs8-fp32", "1", "90", "600.0", "0.067", "1400", "1300")
    assert write_rows(table) == (expected,)


def test_table_leaves_out_what_no_case_knows():
    (table,) = make_tables(make_outcomes_of(()))
    assert table.header == ("case", "peak MiB")


def test_table_says_unknown_where_one_case_of_several_was_not_sampled():
    other = make_outcomes(make_planned_case("1n1g"), [10.0])
    (table,) = make_tables(make_outcomes_of(GPUS), other)
    assert write_rows(table)[1][3:] == ("unknown",) * 4
