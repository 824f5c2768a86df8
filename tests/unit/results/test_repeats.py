"""What a repeat measured: hardware, phases of its start, cost of its data; computed by hand."""

import dataclasses

import pytest
from builders import (
    make_case,
    make_manifest,
    make_outcomes,
    make_planned_case,
    make_rank,
    make_record,
    read_csv,
)
from outcome_builders import PHASE_SECONDS, change_outcomes, make_started_case
from report_values import (
    find_tables,
    list_rows,
    make_repeat_frame,
    read_marks,
    summarize,
    write_rows,
)
from support.cases import vary

from dlperf_slurm.contract.phases import FIRST_STEP, TO_FIRST_STEP
from dlperf_slurm.contract.record import BatchTrial, Clock
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.results.collect import QUEUE, CaseOutcomes
from dlperf_slurm.results.notes import NOT_MEMORY, WAIT_UNKNOWN
from dlperf_slurm.results.repeats import describe_hardware
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval

DEVICE_RATES = [50.0, 51.0, 52.0, 53.0, 54.0, 55.0]
FOLDER_RATES = [40.0, 41.0, 42.0, 43.0, 44.0, 45.0]


def make_fed(data: str, rates: list[float], waits: tuple[float, ...] = (0.0,), **changes: object):
    """Make a case with a rank per value of `waits`, its seconds of waiting for data per repeat."""
    topology = f"1n{len(waits)}g"
    planned = make_planned_case(
        topology, case_id=f"{data}-{topology}", data=data, repeats=len(rates), **changes
    )

    def list_changes(outcome):
        window = outcome.record.window_seconds
        ranks = [
            make_rank(rank, window_seconds=window, data_wait_seconds=seconds)
            for rank, seconds in enumerate(waits)
        ]
        return {"record": {"ranks": tuple(ranks), "case": vary(outcome.record.case, data=data)}}

    return change_outcomes(make_outcomes(planned, rates), list_changes)


def make_table(*cases: CaseOutcomes) -> Table:
    (table,) = find_tables(summarize(make_manifest(), cases), "data")
    return table


def test_throughput_without_waiting_is_over_the_rest_of_the_window():
    # 80 samples in 2 s, half a second of it waiting: 80 / 1.5
    rows = list_rows(make_fed("device", [50.0]), make_fed("folder", [40.0], (0.5,)))
    assert [row.samples_per_s for row in rows] == [50.0, 40.0]
    assert [row.computed_samples_per_s for row in rows] == pytest.approx([50.0, 80 / 1.5])
    assert [row.data_waiting_share for row in rows] == pytest.approx([0.0, 0.25])
    assert [row.relative_to_device_data for row in rows] == pytest.approx([1.0, 0.8])


def test_ratio_to_data_on_the_device_has_its_interval_or_the_reason_why_not():
    on_device = make_fed("device", DEVICE_RATES)
    base, row = list_rows(on_device, make_fed("folder", FOLDER_RATES))
    assert base.relative_to_device_data_low is None
    interval = compute_ratio_interval(DEVICE_RATES, FOLDER_RATES)
    ends = (row.relative_to_device_data_low, row.relative_to_device_data_high)
    assert ends == pytest.approx((interval.low, interval.high))

    few = [on_device, make_fed("folder", [40.0, 41.0, 42.0])]
    table = make_table(*few)
    assert [row[-1] for row in write_rows(table)] == ["1.00", "0.78"]
    summary = summarize(make_manifest(), few)
    assert read_csv(summary)[1]["relative_to_device_data_low"] == ""
    (table,) = find_tables(summary, "data")
    notes = [read_marks(summary, row) for row in table.rows]
    # one note on the case says it, and none on its ratio
    assert [sum("repeats" in note for note in of_row) for of_row in notes] == [0, 1]


def test_rank_that_waited_longest_is_the_one_that_is_told():
    # 160 samples in 4 s; ranks compute for 3 and 2 s
    (row,) = list_rows(make_fed("zmq", [40.0], (1.0, 2.0)))
    assert row.data_waiting_share == pytest.approx(0.5)
    assert row.computed_samples_per_s == pytest.approx(160 / 3)


def test_log_of_another_script_says_nothing_of_waiting():
    theirs = make_fed("python-queue", [40.0], script="tensorpack")
    cases = (make_fed("device", [50.0]), change_cases(theirs, log_format="tensorpack"))
    assert write_rows(make_table(*cases))[1][-3:-1] == ("unknown", "unknown")


def change_records(outcomes: CaseOutcomes, **changes: object) -> CaseOutcomes:
    return change_outcomes(outcomes, lambda _: {"record": changes})


def change_cases(outcomes: CaseOutcomes, **changes: object) -> CaseOutcomes:
    """As the repeats had them."""
    return change_records(outcomes, case=vary(outcomes.records[0].case, **changes))


def use_events(outcomes: CaseOutcomes) -> CaseOutcomes:
    return change_records(outcomes, clock=Clock("cuda_event", 1e-6))


def test_what_the_host_waits_beside_a_device_that_it_does_not_wait_for_is_not_the_device_s():
    # the host waits for a quarter of the window, in which the device may be busy
    cases = [make_fed("device", [50.0]), make_fed("folder", [40.0], (0.5,))]
    summary = summarize(make_manifest(), list(map(use_events, cases)))
    (table,) = find_tables(summary, "data")
    assert WAIT_UNKNOWN in read_marks(summary, table.rows[1])
    assert write_rows(table)[1][-3:] == ("unknown", "unknown", "0.80")
    _, line = read_csv(summary)
    assert (line["computed_samples_per_s"], line["data_waiting_share"]) == ("", "")


def test_nobody_waits_for_a_batch_that_is_on_the_device():
    row, _ = list_rows(*map(use_events, [make_fed("device", [50.0]), make_fed("zmq", [40.0])]))
    assert (row.computed_samples_per_s, row.data_waiting_share) == (50.0, 0.0)


def test_host_that_accumulates_does_not_wait_for_all_of_the_step():
    (row,) = list_rows(change_cases(make_fed("zmq", [40.0], (0.5,)), gradient_accumulation=4))
    assert row.data_waiting_share is None


def make_search(*trials: tuple[int, bool]) -> CaseOutcomes:
    """Make a case whose search tried these (batch size, is out of memory)."""
    tried = tuple(BatchTrial(size, is_out_of_memory, 0, 1.0) for size, is_out_of_memory in trials)
    outcomes = change_records(make_fed("folder", [40.0]), batch_trials=tried)
    return dataclasses.replace(outcomes, case=vary(outcomes.case, batch_size_per_device="max"))


@pytest.mark.parametrize(
    ("trials", "is_told"), [([(8, False), (16, False)], True), ([(8, False), (16, True)], False)]
)
def test_search_that_memory_did_not_end_is_told(trials, is_told):
    assert (NOT_MEMORY in summarize(make_manifest(), [make_search(*trials)]).footnotes) == is_told


@pytest.mark.parametrize(
    ("device", "sockets", "text"),
    [
        ("cpu", "1", "8 ranks on 2x AMD EPYC, 2 nodes"),
        ("cpu", "", "8 ranks on AMD EPYC, 2 nodes"),
        ("cuda", "", "8x NVIDIA H200, 2 nodes"),
    ],
)
def test_ranks_on_cpus_are_not_counted_as_cpus(device, sockets, text):
    case = dataclasses.replace(make_case(topology="2n4g"), device=device)
    record = make_record(case, platform={"cpu_model": "AMD EPYC", "cpu_sockets": sockets})
    ranks = [dataclasses.replace(rank, device_name="NVIDIA H200") for rank in record.ranks]
    assert describe_hardware(dataclasses.replace(record, ranks=tuple(ranks))) == text


def test_each_repeat_has_its_phases_in_the_frame():
    frame = make_repeat_frame([make_started_case(PHASE_SECONDS, None)])
    found = [frame[f"phase_{name}_seconds"].tolist() for name in (QUEUE, FIRST_STEP)]
    assert [values[0] for values in found] == [57, 4]
    assert frame.to_first_step_seconds.isna().tolist() == [False, True]
    assert all(f"phase_{name}_seconds" in frame for name in TO_FIRST_STEP)
