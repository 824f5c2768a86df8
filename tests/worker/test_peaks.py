"""The peak of a device, by real operations of a framework, and by ones that are made up."""

import json
import os
import sys
import time
from pathlib import Path

import pytest
from support import attempts
from support.cases import vary

from dlperf_slurm.contract.json_files import build_dataclass
from dlperf_slurm.contract.peaks import NUMBER_FORMATS, OF_MPI, PEAKS_FILE, DevicePeak, Peaks
from dlperf_slurm.contract.record import OK
from dlperf_slurm.worker.frameworks import list_frameworks
from dlperf_slurm.worker.peaks import (
    Operation,
    PeakSettings,
    list_measured_frameworks,
    load_operations,
)
from dlperf_slurm.worker.peaks.all_reduce import OTHER_SIZES_BYTES, time_all_reduces
from dlperf_slurm.worker.peaks.device_peak import (
    find_best_seconds,
    find_best_size,
    measure_sustained,
)
from dlperf_slurm.worker.peaks.measure import (
    SHARED_DIR,
    SWITCH,
    find_shared_file,
    is_measured,
    run_measurement,
)

JOB = {"SLURM_JOB_ID": "7"}


def make_sleep(seconds):
    return Operation(lambda: time.sleep(seconds), lambda result: None)


def test_frameworks_that_are_measured_are_frameworks():
    assert len(list_measured_frameworks()) >= 6
    assert set(list_measured_frameworks()) <= set(list_frameworks())
    peak = run_measurement(attempts.CASE, "n1")
    assert peak == DevicePeak("n1", problem="the measurement is not implemented for spin")
    assert {NUMBER_FORMATS["amp-bf16"], NUMBER_FORMATS["bf16"]} == {"bf16"}
    with pytest.raises(ValueError, match=r"MXNet .*bf16"):
        load_operations("mxnet").make_product(PeakSettings("cpu", "bf16", 1), 64)


def test_size_is_the_one_with_the_best_rate_until_a_product_takes_long(monkeypatch):
    # the larger one takes 64 times as long for eight times the work
    assert find_best_size(lambda size: make_sleep(0.005 * (size / 512) ** 6)) == 512
    asked = []
    # on a busy machine
    monkeypatch.setattr("dlperf_slurm.worker.peaks.device_peak.SEARCH_SECONDS", 10.0)
    find_best_size(lambda size: asked.append(size) or make_sleep(0.11 if size == 2048 else 0.001))
    assert asked == [512, 1024, 2048]


@pytest.mark.parametrize(("limit_seconds", "calls"), [(10.0, range(3, 10**6)), (0.0, [2])])
def test_time_is_that_of_a_call_without_the_first_until_the_limit(limit_seconds, calls):
    made = []

    def start():
        made.append(time.sleep(0.01 if made else 0.3))

    assert 0.01 <= find_best_seconds(Operation(start, lambda result: None), limit_seconds) < 0.1
    assert len(made) in calls


def test_sustained_rate_is_that_of_the_second_half():
    started = time.monotonic()

    def start():
        time.sleep(0.02 if time.monotonic() < started + 0.3 else 0.06)

    assert 0.06 <= measure_sustained(Operation(start, lambda result: None), 1.0) < 0.12
    # one sample is taken of a product that takes longer than its time
    assert measure_sustained(make_sleep(0.1), 0.0) >= 0.1


@pytest.mark.parametrize(
    ("changes", "environ", "expected"),
    [
        ({}, {}, True),
        ({}, {SWITCH: "0"}, False),
        ({"telemetry_interval_seconds": 0}, {}, False),
        ({"mode": "infer"}, {}, False),
    ],
)
def test_peaks_are_measured_for_trainings_unless_they_are_left_out(changes, environ, expected):
    assert is_measured(vary(attempts.CASE, **changes), environ) == expected


def test_what_goes_wrong_is_told_in_its_last_line(monkeypatch, tmp_path):
    (tmp_path / "torch.py").write_text("raise RuntimeError('no such luck')")
    folders = [str(tmp_path), str(Path(__file__).resolve().parents[2])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    peak = run_measurement(vary(attempts.CASE, framework="pytorch"), "n1")
    assert peak == DevicePeak("n1", problem="the measurement failed: RuntimeError: no such luck")


@pytest.mark.parametrize(
    ("changes", "host", "environ", "is_shared"),
    [
        ({"repeat": 2}, "n1", JOB, True),
        ({"precision": "bf16"}, "n1", JOB, False),
        ({"framework": "jax"}, "n1", JOB, False),
        ({}, "n2", JOB, False),
        ({}, "n1", {"DLPERF_SLURM_JOB_ID": "local-1-2@n1"}, False),
    ],
)
def test_peak_is_shared_by_what_computes_alike_in_one_allocation_on_one_node(
    tmp_path, changes, host, environ, is_shared
):
    folder = tmp_path / "cases" / "c" / "r1" / "a1" / "s0"
    root, path = find_shared_file(attempts.CASE, "n1", folder, JOB)
    assert (root, path.parent) == (tmp_path, tmp_path / SHARED_DIR)
    other = vary(attempts.CASE, **changes)
    found = find_shared_file(other, host, folder / "trials" / "8", environ)
    assert (found == (root, path)) is is_shared


def test_peak_outside_of_a_job_or_a_run_is_not_shared(tmp_path):
    assert find_shared_file(attempts.CASE, "n1", tmp_path / "cases" / "c" / "r1", {}) is None
    assert find_shared_file(attempts.CASE, "n1", tmp_path / "a1", JOB) is None


def test_real_ranks_sum_as_many_bytes_as_gradients_have(tmp_path, code_dir, mpi, monkeypatch):
    monkeypatch.setenv(SWITCH, "1")
    attempt = attempts.Attempt(tmp_path / "a1", code_dir).launch()
    record = attempt.read_record()
    assert record.status == OK, attempt.stderr
    data = json.loads((attempt.path / PEAKS_FILE).read_text(encoding="utf-8"))
    peaks = build_dataclass(Peaks, data, PEAKS_FILE)
    sizes = [one.byte_count for one in peaks.all_reduce]
    # the larger ones may be left out for want of time
    assert sizes == [4 * record.parameter_count, *OTHER_SIZES_BYTES][: len(sizes)]
    assert len(sizes) > 1
    assert {one.via for one in peaks.all_reduce} == {OF_MPI}
    assert all(one.seconds > 0 for one in peaks.all_reduce)
    assert [one.problem for one in peaks.devices] == ["the measurement is not implemented for spin"]


class TwoRanks:
    """The world of this rank and one that tells what it tells, or this instead."""

    size = 2

    def __init__(self, *others):
        self.others = list(others)

    def exchange(self, value):
        return [value, self.others.pop(0) if self.others else value]

    def barrier(self):
        pass


@pytest.mark.parametrize("others", [(False,), (True, 0.0)], ids=["memory", "sum"])
def test_sum_that_fails_on_one_rank_is_none_on_all(others, monkeypatch):
    monkeypatch.setattr(
        "dlperf_slurm.worker.peaks.all_reduce._make_operation", lambda *_: (make_sleep(0.001), "x")
    )
    assert [*time_all_reduces(attempts.CASE, TwoRanks(*others), 10)] == []
    assert next(time_all_reduces(attempts.CASE, TwoRanks(), 10)).seconds >= 0.001


def test_other_sizes_end_with_their_time(monkeypatch):
    monkeypatch.setattr(
        "dlperf_slurm.worker.peaks.all_reduce._make_operation", lambda *_: (make_sleep(0.01), "x")
    )
    monkeypatch.setattr("dlperf_slurm.worker.peaks.all_reduce.LIMIT_SECONDS", 0.1)
    found = [*time_all_reduces(attempts.CASE, TwoRanks(), 10)]
    assert [one.byte_count for one in found][:2] == [40, OTHER_SIZES_BYTES[0]]
    assert len(found) < 1 + len(OTHER_SIZES_BYTES)


@pytest.fixture
def measured(framework):
    if framework not in list_measured_frameworks():
        pytest.skip(f"{framework} has no operations for a peak")
    return framework


def test_framework_multiplies_and_copies_all_of_it(measured):
    operations, setting = load_operations(measured), PeakSettings("cpu", "fp32", 1)
    for operation in (operations.make_product(setting, 64), operations.make_copy(setting, 1000)):
        result = operation.start()
        operation.wait(result)
        assert int(result.shape[0]) in (64, 1000)


@pytest.mark.parametrize("printed", ["", "no JSON", "[]", '{"host": 1}'])
def test_answer_that_is_no_peak_is_a_problem_of_the_peak_alone(printed, tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    assert run_measurement(vary(attempts.CASE, framework="pytorch"), "n1").problem != ""


def test_peak_of_this_device_is_measured_in_a_process_of_its_own(measured, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
    peak = run_measurement(vary(attempts.CASE, framework=measured), "n1")
    assert peak.problem == ""
    # of any CPU's core: a tenth of what is usual, and far above it
    assert 1e8 < peak.flops_per_s < 1e14
    assert 1e7 < peak.copied_bytes_per_s < 1e13
    assert peak.product_size >= 512
