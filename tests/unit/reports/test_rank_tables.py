"""Rank tables: every expected figure is computed by hand; planted slow machines are named."""

import dataclasses
import json
import random

import numpy
import pytest
from builders import make_manifest, make_outcomes, make_planned_case, make_rank, read_csv
from report_values import find_tables, list_rows, summarize, write_report, write_rows
from support.problems import assert_problem

from dlperf_slurm.results.case_summary import STEP_PERCENTILES
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.stats.stragglers import Machine, find_slow_machines

SEED = 2020
SHAPES = {"1n2g": (1, 2), "1n4g": (1, 4), "2n2g": (2, 2), "4n2g": (4, 2)}


def make_case(topology, repeats, hosts=None, **changes) -> CaseOutcomes:
    """Make a case whose repeats have these step times [ranks][steps], ranks in order of hosts."""
    nodes, devices = SHAPES[topology]
    planned = make_planned_case(topology, repeats=len(repeats), **changes)
    outcomes = make_outcomes(planned, [100.0] * len(repeats)).outcomes
    hosts = hosts or [[f"node{n + 1}" for n in range(nodes)]] * len(repeats)
    return CaseOutcomes(
        planned,
        tuple(
            dataclasses.replace(
                outcome,
                record=dataclasses.replace(
                    outcome.record,
                    ranks=tuple(
                        make_rank(rank, host=names[rank // devices], local_rank=rank % devices)
                        for rank in range(nodes * devices)
                    ),
                ),
                rank_step_seconds=numpy.array(seconds, dtype=float),
            )
            for outcome, seconds, names in zip(outcomes, repeats, hosts)
        ),
    )


def list_devices(*cases: CaseOutcomes):
    """Return the rows of the frame of devices, the slowest of each case first."""
    return [*analyze(cases).frames.devices.itertuples()]


def make_row(*repeats):
    (row,) = list_rows(make_case("1n4g", repeats))
    return row


def list_slow_machines(*cases: CaseOutcomes) -> list[str]:
    """List the footnotes about slow machines."""
    texts = summarize(make_manifest(), cases).footnotes
    return [text for text in texts if " was the slowest of " in text]


def make_noise(generator, ranks, slow=(), factor=1.0, steps=20):
    """Step times that vary by 3 % between repeats and by 2 % from step to step."""
    repeat = generator.lognormvariate(0, 0.03)
    return [
        [
            0.1 * repeat * generator.lognormvariate(0, 0.02) * (factor if rank in slow else 1)
            for _ in range(steps)
        ]
        for rank in range(ranks)
    ]


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


def test_ranks_are_listed_from_the_slowest():
    devices = list_devices(make_case("1n4g", [[[1], [3], [2], [1.5]]]))
    assert [device.ranks for device in devices] == ["1", "2", "3", "0"]


def test_percentiles_are_those_of_the_steps_of_all_repeats():
    # rank 0: 1, 2, 3 and 4, 5; median 3, 90 % at 4.6, 99 % at 4.96
    repeats = [[[1, 2, 3]] + [[0, 0, 0]] * 3, [[4, 5]] + [[0, 0]] * 3]
    assert read_steps(list_devices(make_case("1n4g", repeats))[0]) == pytest.approx(
        (3, 4.6, 4.96, 5)
    )


def read_steps(device) -> tuple[float, ...]:
    return tuple(getattr(device, f"p{percent}_seconds") for percent in STEP_PERCENTILES)


def test_device_is_followed_over_the_hosts_of_its_repeats():
    case = make_case("2n2g", [[[1], [1], [1], [3]]] * 2, [["a", "b"], ["b", "c"]])
    slowest, second = list_devices(case)[:2]
    assert (slowest.host, slowest.ranks, slowest.slowest_repeats) == ("c", "3", 1)
    # as rank 3 it took 3 medians, as rank 1 it took one
    assert (second.host, second.ranks, second.slowness) == ("b", "1 3", 2)


def test_percentiles_follow_a_device_to_other_ranks():
    """The hosts change places, and one is in the last repeat alone."""
    repeats = [[[1, 1], [2, 2], [7, 7], [8, 8]], [[7, 7], [8, 8], [1, 1], [2, 2]], [[5, 5]] * 4]
    hosts = [["node1", "node2"], ["node2", "node1"], ["node3", "node1"]]
    devices = list_devices(make_case("2n2g", repeats, hosts))
    found = {(device.host, device.local_rank): read_steps(device) for device in devices}
    assert found["node2", 0] == (7, 7, 7, 7)
    assert found["node2", 1] == (8, 8, 8, 8)
    assert found["node3", 0] == (5, 5, 5, 5)
    assert (found["node1", 0][0], found["node1", 0][-1]) == (1, 5)
    assert (found["node1", 1][0], found["node1", 1][-1]) == (2, 5)


def test_inference_waits_for_nobody():
    (row,) = list_rows(make_case("1n2g", [[[1], [2]]], mode="infer"))
    assert row.waiting_share is None


@pytest.mark.parametrize("seconds", [None, numpy.array([[1.0, 2.0]])])
def test_case_without_step_times_of_several_ranks_has_no_row(seconds):
    outcomes = make_outcomes(make_planned_case(), [100.0]).outcomes
    timed = dataclasses.replace(outcomes[0], rank_step_seconds=seconds)
    case = CaseOutcomes(make_planned_case(), (timed,))
    assert find_tables(summarize(make_manifest(), [case]), "ranks") == []


def test_slow_device_is_named_with_the_test_that_found_it():
    # one of its host's two by chance in seven repeats: 2 ** -7, of four devices in all 0.031;
    # 1.2 / 1.1 - 1
    (text,) = list_slow_machines(make_case("2n2g", [[[1.0], [1.0], [1.1], [1.2]]] * 7))
    says = ("node2 local rank 1", "7 of 7 repeats", "9.1 %", "p = 0.031", "Holm")
    assert_problem(text, says=says)


def test_host_is_at_fault_when_its_devices_take_turns():
    repeats = [[[1.0], [1.0], [1.2], [1.1]], [[1.0], [1.0], [1.1], [1.2]]] * 4
    (text,) = list_slow_machines(make_case("2n2g", repeats))
    # one of two hosts in eight repeats: 2 ** -8, for two hosts
    assert text.startswith("node2 was the slowest of the hosts in 8 of 8 repeats")
    assert f"p = {2 / 256:.2g} " in text


def test_slow_host_is_found_over_several_cases_of_few_repeats():
    first, second = [[1.0], [1.0], [1.2], [1.1]], [[1.0], [1.0], [1.1], [1.2]]
    cases = [
        make_case("2n2g", [first, second, first], hosts=[["a", "b"]] * 3, precision=precision)
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
    contests = [{Machine("a"): seconds, Machine("b"): 1.0}] * repeats
    assert find_slow_machines(contests) == ()


def test_chance_counts_how_many_machines_each_repeat_had():
    # 1/2 * 1/4 * 1/4 * 1/4 = 1/128, for four machines 1/32
    two = {Machine("a"): 2.0, Machine("b"): 1.0}
    four = {**two, Machine("c"): 1.0, Machine("d"): 1.0}
    (slow,) = find_slow_machines([two, four, four, four])
    assert (slow.machine.host, slow.p_value) == ("a", pytest.approx(4 / 128))


@pytest.mark.parametrize(
    ("topology", "ranks", "slow", "repeats", "name"),
    [("4n2g", 8, (4, 5), 7, "node3 was"), ("1n4g", 4, (2,), 5, "node1 local rank 2 was")],
)
def test_planted_slow_machine_is_found_in_noise(topology, ranks, slow, repeats, name):
    generator = random.Random(SEED)
    noise = [make_noise(generator, ranks, slow=slow, factor=1.1) for _ in range(repeats)]
    (text,) = list_slow_machines(make_case(topology, noise))
    assert text.startswith(name)


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


def make_summary():
    return summarize(
        make_manifest(), [make_case("2n2g", [[[0.1, 0.1], [0.1, 0.1], [0.1, 0.1], [0.2, 0.1]]] * 6)]
    )


def test_table_names_the_slowest_rank_with_its_host():
    (table,) = find_tables(make_summary(), "ranks")
    # medians 0.1, 0.1, 0.1, 0.15; waiting (1 - 0.125 / 0.2 + 1 - 1) / 2 = 0.1875
    assert write_rows(table) == (
        (
            "pytorch-resnet50-2n2g-bs8-fp32",
            f"3 on node2 [{len(make_summary().footnotes)}]",
            "6 of 6",
            "1.500",
            "18.8 %",
        ),
    )


def test_table_of_step_times_has_the_slowest_ranks_and_the_fastest():
    case = make_case("4n2g", [[[0.1 + rank / 100] for rank in range(8)]])
    (table,) = find_tables(summarize(make_manifest(), [case]), "rank times")
    rows = write_rows(table)
    assert [row[1:4] for row in rows] == [
        ("7", "node4", "cpu"), ("6", "node4", "cpu"), ("5", "node3", "cpu"), ("0", "node1", "cpu"),
    ]  # fmt: skip
    assert rows[0][-4:] == ("170.00",) * 4


def test_json_has_every_rank():
    data = json.loads(write_report("json", make_summary()))
    assert [device["local_rank"] for device in data["devices"]] == [1, 0, 1, 0]


def test_csv_has_imbalance_and_the_slowest_rank():
    (found,) = read_csv(make_summary())
    assert (found["imbalance"], found["slowest_host"], found["slowest_rank"]) == (
        "1.5000000000000002", "node2", "3",
    )  # fmt: skip
