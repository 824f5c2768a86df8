"""Tables of ranks, memory, energy and starts, computed by hand; planted slow machines are named."""

import dataclasses
import json
import random

import numpy
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
from outcome_builders import PHASE_SECONDS, change_outcomes, make_started_case, make_telemetry
from report_values import (
    find_tables,
    list_rows,
    read_column,
    read_marks,
    summarize,
    write_report,
    write_rows,
)
from support.problems import assert_problem

from dlperf_slurm.contract.phases import FIRST_STEP, LOOK
from dlperf_slurm.contract.record import HOST, NODE, DeviceState, Epoch
from dlperf_slurm.results.case_summary import STEP_PERCENTILES
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.resource_usage import UNKNOWN_PEAK_MEMORY, WITH_VALIDATIONS
from dlperf_slurm.stats.stragglers import Machine, find_slow_machines

SEED = 2020
SHAPES = {"1n2g": (1, 2), "1n4g": (1, 4), "2n2g": (2, 2), "4n2g": (4, 2)}


def make_rank_case(topology, repeats, hosts=None, **changes) -> CaseOutcomes:
    """Make a case whose repeats have these step times [ranks][steps], ranks in order of hosts."""
    nodes, devices = SHAPES[topology]
    hosts = hosts or [[f"node{n + 1}" for n in range(nodes)]] * len(repeats)

    def list_changes(outcome):
        names, seconds = hosts[outcome.repeat - 1], repeats[outcome.repeat - 1]
        ranks = tuple(
            make_rank(rank, host=names[rank // devices], local_rank=rank % devices)
            for rank in range(nodes * devices)
        )
        return {"rank_step_seconds": numpy.array(seconds, float), "record": {"ranks": ranks}}

    planned = make_planned_case(topology, repeats=len(repeats), **changes)
    return change_outcomes(make_outcomes(planned, [100.0] * len(repeats)), list_changes)


def list_devices(*cases: CaseOutcomes):
    """Return the rows of the frame of devices, the slowest of each case first."""
    return [*analyze(cases).frames.devices.itertuples()]


def make_row(*repeats):
    (row,) = list_rows(make_rank_case("1n4g", repeats))
    return row


def list_slow_machines(*cases: CaseOutcomes) -> list[str]:
    """List the footnotes about slow machines."""
    texts = summarize(make_manifest(), cases).footnotes
    return [text for text in texts if " was the slowest of " in text]


@pytest.mark.parametrize(
    ("repeats", "imbalance", "waiting"),
    [
        # medians 1, 2, 3 and 6: 6 / 2.5. The mean of the last rank is 22
        ([[[1, 1, 1], [2, 2, 2], [3, 3, 3], [6, 6, 54]]], 2.4, None),
        # step 1: mean 2, slowest 4, half is waiting; step 2: all alike; in the mean a quarter
        ([[[1, 5], [1, 5], [2, 5], [4, 5]]], None, 0.25),
        # imbalances 1.5, 2 and 1
        ([[[2], [2], [2], [3]], [[2], [2], [2], [4]], [[2], [2], [2], [2]]], 1.5, None),
        # steps that took no time
        ([[[0.0], [0.0], [0.0], [0.0]]], 1, 0),
    ],
)
def test_imbalance_and_waiting_are_of_the_slowest_rank(repeats, imbalance, waiting):
    row = make_row(*repeats)
    assert imbalance is None or row.imbalance == pytest.approx(imbalance)
    assert waiting is None or row.waiting_share == pytest.approx(waiting)


def test_percentiles_are_those_of_the_steps_of_all_repeats():
    # rank 0: 1, 2, 3 and 4, 5; median 3, 90 % at 4.6, 99 % at 4.96
    repeats = [[[1, 2, 3]] + [[0, 0, 0]] * 3, [[4, 5]] + [[0, 0]] * 3]
    device = list_devices(make_rank_case("1n4g", repeats))[0]
    found = [getattr(device, f"p{percent}_seconds") for percent in STEP_PERCENTILES]
    assert found == pytest.approx([3, 4.6, 4.96, 5])


def test_device_is_followed_over_the_hosts_of_its_repeats():
    case = make_rank_case("2n2g", [[[1], [1], [1], [3]]] * 2, [["a", "b"], ["b", "c"]])
    slowest, second = list_devices(case)[:2]
    assert (slowest.host, slowest.ranks, slowest.slowest_repeats) == ("c", "3", 1)
    # as rank 3 it took 3 medians, as rank 1 it took one
    assert (second.host, second.ranks, second.slowness) == ("b", "1 3", 2)


def test_inference_waits_for_nobody():
    (row,) = list_rows(make_rank_case("1n2g", [[[1], [2]]], mode="infer"))
    assert row.waiting_share is None


def test_slow_device_is_named_with_the_test_that_found_it():
    # one of its host's two by chance in seven repeats: 2 ** -7, of four devices in all 0.031;
    # 1.2 / 1.1 - 1
    (text,) = list_slow_machines(make_rank_case("2n2g", [[[1.0], [1.0], [1.1], [1.2]]] * 7))
    says = ("node2 local rank 1", "7 of 7 repeats", "9.1 %", "p = 0.031", "Holm-adjusted")
    assert_problem(text, says=says)


def test_host_is_at_fault_when_its_devices_take_turns():
    repeats = [[[1.0], [1.0], [1.2], [1.1]], [[1.0], [1.0], [1.1], [1.2]]] * 4
    (text,) = list_slow_machines(make_rank_case("2n2g", repeats))
    # one of two hosts in eight repeats: 2 ** -8, for two hosts
    assert text.startswith("node2 was the slowest of the hosts in 8 of 8 repeats")
    assert f"(p = {2 / 256:.2g}: " in text


def test_slow_host_is_found_over_several_cases_of_few_repeats():
    first, second = [[1.0], [1.0], [1.2], [1.1]], [[1.0], [1.0], [1.1], [1.2]]
    cases = [
        make_rank_case("2n2g", [first, second, first], hosts=[["a", "b"]] * 3, precision=precision)
        for precision in ("fp32", "tf32", "amp-bf16")
    ]
    (text,) = list_slow_machines(*cases)
    assert text.startswith("b was the slowest")


@pytest.mark.parametrize(
    ("seconds", "repeats"),
    # 2 ** -3 for each of two: 0.25; hardly slower; alike
    [(2.0, 3), (1.019, 20), (1.0, 20)],
)
def test_machine_is_not_named_by_chance(seconds, repeats):
    assert find_slow_machines([{Machine("a"): seconds, Machine("b"): 1.0}] * repeats) == ()


def test_chance_counts_how_many_machines_each_repeat_had():
    # 1/2 * 1/4 * 1/4 * 1/4 = 1/128, for four machines 1/32
    two = {Machine("a"): 2.0, Machine("b"): 1.0}
    four = {**two, Machine("c"): 1.0, Machine("d"): 1.0}
    (slow,) = find_slow_machines([two, four, four, four])
    assert (slow.machine.host, slow.p_value) == ("a", pytest.approx(4 / 128))


def test_noise_raises_a_false_alarm_in_less_than_one_run_in_twenty():
    """Noise of 30 % passes the least excess, so that the test itself is seen."""
    generator = random.Random(SEED)
    alarms = 0
    for _ in range(400):
        contests = [
            {Machine(f"node{n}"): generator.lognormvariate(0, 0.3) for n in range(4)}
            for _ in range(7)
        ]
        alarms += bool(find_slow_machines(contests))
    # 400 runs: 20 by the level, which so few repeats do not use up
    assert 0 < alarms < 20


def test_slowest_rank_is_named_with_its_host():
    summary = summarize(
        make_manifest(),
        [make_rank_case("2n2g", [[[0.1, 0.1], [0.1, 0.1], [0.1, 0.1], [0.2, 0.1]]] * 6)],
    )
    (table,) = find_tables(summary, "ranks")
    # medians 0.1, 0.1, 0.1, 0.15; waiting (1 - 0.125 / 0.2 + 1 - 1) / 2 = 0.1875
    ((_, name, *figures),) = write_rows(table)
    assert name == f"3 on node2 [{len(summary.footnotes)}]"
    assert figures == ["6 of 6", "1.500", "18.8 %"]
    (line,) = read_csv(summary)
    assert (line["slowest_host"], line["slowest_rank"]) == ("node2", "3")
    data = json.loads(write_report("json", summary))
    assert [device["local_rank"] for device in data["devices"]] == [1, 0, 1, 0]


def test_table_of_step_times_has_the_slowest_ranks_and_the_fastest():
    case = make_rank_case("4n2g", [[[0.1 + rank / 100] for rank in range(8)]])
    (table,) = find_tables(summarize(make_manifest(), [case]), "rank times")
    rows = write_rows(table)
    assert [row[1:4] for row in rows] == [
        ("7", "node4", "cpu"), ("6", "node4", "cpu"), ("5", "node3", "cpu"), ("0", "node1", "cpu"),
    ]  # fmt: skip
    assert rows[0][-4:] == ("170.00",) * 4


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


def make_resource_row(*telemetry, **changes):
    (row,) = list_rows(make_outcomes_of(*telemetry, **changes))
    return row


def list_footnotes(*telemetry, **changes):
    summary = summarize(make_manifest(), [make_outcomes_of(*telemetry, **changes)])
    (table,) = find_tables(summary, "resources")
    return read_marks(summary, table.rows[0])


SLOW = (GPUS[0], make_telemetry(1, least_clock_mhz=700.0))
IDLE = [(make_telemetry(0, mean_power_watts=watts), GPUS[1]) for watts in (100.0, 200.0, 900.0)]
HOST_BESIDE = (make_telemetry(HOST, mean_clock_mhz=100.0, mean_utilization=0.1), *GPUS)
CPUS = (make_telemetry(HOST, mean_power_watts=200.0, mean_clock_mhz=0.0, least_clock_mhz=0.0),)
WITH_NODE, NODE_UNKNOWN = (
    (make_telemetry(NODE, mean_power_watts=watts), *GPUS) for watts in (900.0, 0.0)
)


@pytest.mark.parametrize(
    ("telemetry", "device", "figures"),
    [
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
        # whole nodes beside their devices, and where all nodes tell
        ([WITH_NODE], "cuda", {"power_watts": 600, "joules_per_sample": 600 / SAMPLES_PER_S}),
        ([WITH_NODE], "cuda", {"node_power_watts": 900, "node_joules_per_sample": 22.5}),
        ([NODE_UNKNOWN], "cuda", {"node_power_watts": None, "joules_per_sample": None}),
        # the lowest of any device in any repeat
        ([GPUS, SLOW], "cuda", {"least_clock_mhz": 700}),
    ],
)
def test_use_is_that_of_all_devices(telemetry, device, figures):
    row = make_resource_row(*telemetry, device=device)
    assert ({name: getattr(row, name) for name in figures}) == pytest.approx(figures)


def test_power_of_a_training_with_validations_tells_nothing_of_samples_per_joule():
    epochs = (Epoch(1, 0.5, 1.0, 1.0, training_seconds=4.0, elapsed_seconds=6.0),)
    row = make_resource_row(GPUS, epochs=epochs)
    assert (row.power_watts, row.samples_per_joule) == (600, None)
    assert list_footnotes(GPUS, epochs=epochs) == [WITH_VALIDATIONS]
    assert list_footnotes((), epochs=epochs) == []


def test_peak_memory_is_the_most_of_any_rank_in_any_repeat():
    first, second = make_record(make_case()).ranks
    ranks = ((first, dataclasses.replace(second, peak_memory_bytes=2**30)), (first, second))
    case = change_outcomes(
        make_outcomes_of(GPUS, GPUS), lambda one: {"record": {"ranks": ranks[one.repeat]}}
    )
    assert list_rows(case)[0].peak_memory_bytes == 2**30


def test_what_held_clocks_down_is_named_with_the_devices():
    hot = make_telemetry(1, throttle_reasons=("power cap", "thermal slowdown by hardware"))
    capped = make_telemetry(0, throttle_reasons=("power cap",))
    (text,) = list_footnotes((capped, hot), (capped, GPUS[1]))
    says = ("power cap (node1 device 0, node1 device 1)", "hardware (node1 device 1)")
    assert_problem(text, key="clocks were throttled", says=says)
    many = [dataclasses.replace(capped, device=device) for device in range(8)]
    assert list_footnotes(many)[0].endswith("power cap (8 of 8 devices)")


@pytest.mark.parametrize(
    ("end", "what", "says"),
    [
        ((1900, 700, ()), "", ""),
        ((1800, 700, ()), "clock", "1980 MHz to 1800 MHz"),
        ((1980, 500, ()), "power limit", "700 W to 500 W"),
        ((1980, 700, ("power cap",)), "throttle reasons", "from none to power cap"),
    ],
)
def test_state_that_changed_within_the_window_is_noted(end, what, says):
    state = {"at_start": DeviceState(1980, 700, ()), "at_end": DeviceState(*end)}
    texts = list_footnotes((GPUS[0], make_telemetry(1, **state)), GPUS)
    assert len(texts) == bool(what)
    for text in texts:
        key = f"{what} changed during the measured steps"
        assert_problem(text, key=key, says=("node1 device 1", says))


def test_error_counters_that_grew_are_summed_over_repeats_by_device():
    grown = make_telemetry(1, errors={"PCIe replays": 3})
    port = make_telemetry(HOST, errors={"mlx5_0/1 link_downed": 1})
    (text,) = list_footnotes((GPUS[0], grown, port), (GPUS[0], grown, GPUS[1]))
    assert_problem(text, says=("PCIe replays by 6 (node1 device 1)", "link_downed by 1 (node1)"))


RANKS = make_record(make_case()).ranks
WITHOUT_PEAK = (RANKS[0], dataclasses.replace(RANKS[1], peak_memory_bytes=0))
DEAD_SAMPLER = {"telemetry": "node1: the sampling process died"}


@pytest.mark.parametrize(
    ("telemetry", "changes", "says"),
    [
        ([GPUS], {"ranks": RANKS}, None),
        ([GPUS], {"ranks": WITHOUT_PEAK}, UNKNOWN_PEAK_MEMORY),
        # shorter than what drivers average
        ([GPUS], {"ranks": make_record(make_case(), 0.4).ranks}, "steps, which lasted 0.40 s"),
        ([(), ()], {"platform": DEAD_SAMPLER}, "repeat 1, 2: node1: the sampling process died"),
    ],
)
def test_figures_that_are_unknown_or_doubtful_are_noted(telemetry, changes, says):
    texts = list_footnotes(*telemetry, **changes)
    assert [says in text for text in texts] == [True] * (says is not None)


def test_table_has_one_column_per_known_figure():
    other = make_outcomes(make_planned_case("1n1g"), [10.0])
    # which has no row
    failed = make_outcomes(make_planned_case("2n2g"), (), ["failed: x"])
    cases = [make_outcomes_of(GPUS), other, failed]
    (table,) = find_tables(summarize(make_manifest(), cases), "resources")
    assert table.header == ("case", "peak MiB", "busy %", "W", "images/J", "MHz", "least MHz")
    first, second = write_rows(table)
    assert first[1:] == ("1", "90", "600.0", "0.067", "1400", "1300")
    assert second[3:] == ("unknown",) * 4


def test_table_of_starts_has_medians_over_the_repeats_that_tell():
    case = make_started_case(PHASE_SECONDS, None, {**PHASE_SECONDS, FIRST_STEP: 6.0})
    (table,) = find_tables(summarize(make_manifest(), [case]), "starts")
    assert write_rows(table) == (
        ("pytorch", "1n1g", "1", "57.0", "1.0", "2.0", "0.5", "5.0", "8.5", "8.0"),
    )


def test_starts_of_one_framework_and_topology_are_one_row():
    slow = {**PHASE_SECONDS, LOOK: 2.5}
    cases = [
        make_started_case(PHASE_SECONDS, case_id="a", precision="fp32"),
        make_started_case(slow, case_id="b", precision="tf32"),
        make_started_case(PHASE_SECONDS, case_id="c", topology="1n2g"),
    ]
    (table,) = find_tables(summarize(make_manifest(), cases), "starts")
    columns = [read_column(table, header) for header in ("topology", "cases", "look")]
    rows = [tuple(cell.text for cell in row) for row in zip(*columns)]
    assert rows == [("1n1g", "2", "1.5"), ("1n2g", "1", "0.5")]
