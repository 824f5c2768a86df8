"""A record that contradicts its case, its run or itself is refused, and says where."""

import dataclasses
import json
import math
import re

import numpy
import pytest
from builders import (
    find_start_dir,
    find_task,
    make_case,
    make_failed_record,
    make_ranks,
    make_record,
    read_case,
    replace_case,
    write_record,
)
from outcome_builders import make_telemetry
from support.cases import vary

from dlperf_slurm.contract.case import Training
from dlperf_slurm.contract.host_noise import (
    HOST_NOISE_FILE,
    CpuUse,
    HostNoise,
    NoiseReport,
    OtherProcess,
)
from dlperf_slurm.contract.json_files import ContractError, write_sidecar
from dlperf_slurm.contract.peaks import PEAKS_FILE, Peaks
from dlperf_slurm.contract.record import BatchTrial, Epoch
from dlperf_slurm.contract.step_archive import SidecarFile
from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs.attempts import NO_SIDECARS, Sidecars, Start
from dlperf_slurm.jobs.record_consistency import find_token_problem
from dlperf_slurm.jobs.record_validation import (
    InvalidRecordError,
    find_sidecar_problem,
    parse_sidecars,
    read_valid_record,
)
from dlperf_slurm.jobs.run_directory import CASES_FILE

TOPOLOGY = "1n2g"


@pytest.fixture
def task(staged_run):
    return find_task(staged_run, TOPOLOGY)


@pytest.fixture
def case(staged_run, task):
    return read_case(staged_run, task)


def believe(run, task, planned_changes=None):
    (planned,) = (c for c in run.manifest.cases if c.case_id == task.case_id)
    planned = vary(planned, **(planned_changes or {}))
    start = Start(0, find_start_dir(run, task))
    return read_valid_record(run.path, run.run_id, planned, task, start)


def refuse(run, task, record, planned_changes=None) -> str:
    """Why this record is not believed in its place."""
    write_record(run, task, record)
    with pytest.raises(InvalidRecordError) as caught:
        believe(run, task, planned_changes)
    message = str(caught.value)
    assert message.startswith(
        (f"{task.attempt_dir}/s0/record.json: ", f"{task.attempt_dir}/s0/step_seconds.npy: ")
    )
    return message


def test_every_field_of_a_case_and_its_axes_is_compared(staged_run, task, case):
    """With one more field, a value of another case passes here until it is compared."""
    unlike = {int: 12345, float: 123.5, str: "other", bool: True}
    others = {"model_parameters": {"classes": 10}, "training": Training(epochs=3)}
    others.update(log_format="tensorpack", topology="2n1g", batch_size_per_device=8000)
    for owner in (case, case.axes):
        for field in dataclasses.fields(owner):
            other = others.get(field.name, unlike.get(field.type))
            if other is not None:
                message = refuse(staged_run, task, make_record(vary(case, **{field.name: other})))
                assert f"{field.name} is {other!r}"[:40] in message
                assert f", {CASES_FILE} has {getattr(owner, field.name)!r}"[:40] in message
    message = refuse(staged_run, task, make_failed_record(vary(case, precision="amp-fp16")))
    assert "case.axes.precision is 'amp-fp16', " in message


def test_log_of_a_script_sets_the_steps_of_its_case_and_nothing_else(staged_run, task, case):
    asked = vary(case, log_format="tensorpack")
    replace_case(staged_run, task, asked)
    write_record(staged_run, task, make_record(vary(asked, warmup_steps=0, measured_steps=7)))
    assert believe(staged_run, task).record.samples_per_s == 7 * 16 / 2.0
    assert "case.seed is 9, " in refuse(staged_run, task, make_record(vary(asked, seed=9)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"run_id": "other"}, "case.run_id of cases.jsonl is 'other', this run has '"),
        ({"model": "bert"}, "case.model of cases.jsonl is 'bert', this run has 'resnet50'"),
        ({"precision": "tf32"}, "precision of cases.jsonl is 'tf32', the manifest has 'fp32'"),
        ({"training": Training(epochs=9)}, "epochs of cases.jsonl is 9, the manifest has 0"),
    ],
)
def test_case_file_of_another_run_is_refused(staged_run, task, case, changes, expected):
    other = vary(case, **changes)
    replace_case(staged_run, task, other)
    assert expected in refuse(staged_run, task, make_record(other))


@pytest.mark.parametrize("damage", [None, b"", b"[]\n", b"{}\n"])
def test_file_of_cases_that_is_missing_or_lacks_one_is_named(staged_run, task, case, damage):
    write_record(staged_run, task, make_record(case))
    path = staged_run.path / CASES_FILE
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: task.case_offset] + damage)
    says = "is missing" if damage is None else f"the case {task.case_id}: "
    with pytest.raises(FileProblem, match=f"{path}: {says}"):
        believe(staged_run, task)


def change_ranks(case, **changes):
    return tuple(dataclasses.replace(rank, **changes) for rank in make_ranks(case))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: {"ranks": change_ranks(c, data_wait_seconds=2.0)}, "data_wait_seconds is 2.0"),
        (lambda c: {"ranks": change_ranks(c, local_rank=2)}, "ranks[0].local_rank is 2"),
        (lambda c: {"ranks": make_ranks(c)[::-1]}, "ranks[0].rank is 1; allowed: 0"),
        (
            lambda c: {"ranks": change_ranks(c, local_rank=1)},
            "ranks[1].local_rank is 1, but another rank on 'node1' has the same",
        ),
        (lambda c: {"telemetry": (make_telemetry(host="other"),)}, "which no rank used"),
        (lambda c: {"telemetry": (make_telemetry(device=2),)}, "which no rank used"),
        (
            lambda c: {"parameter_count": 110_106_428},
            "parameter_count is 110106428, but resnet50 has 25557032",
        ),
        (
            lambda c: {"trained_samples": 10**9},
            "trained_samples is 1000000000, but the case does not train over epochs",
        ),
    ],
)
def test_value_that_contradicts_the_case_or_the_others_is_refused(
    staged_run, task, case, change, says
):
    assert says in refuse(staged_run, task, make_record(case, **change(case)))


@pytest.mark.parametrize(
    ("least", "steps", "is_valid"), [(5.0, 12, True), (5.0, 7, False), (0.0, 12, False)]
)
def test_more_steps_are_those_of_a_case_with_least_seconds(
    staged_run, task, case, least, steps, is_valid
):
    asked = vary(case, min_measured_seconds=least)
    replace_case(staged_run, task, asked)
    record = make_record(asked, measured_steps=steps)
    write_record(staged_run, task, record)
    if is_valid:
        # 8 samples on each of 2 devices
        assert believe(staged_run, task).record.samples_per_s == steps * 16 / 2.0
    else:
        assert f"measured_steps is {steps}, but" in refuse(staged_run, task, record)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"measured_steps": 0}, "case.measured_steps is 0; allowed: at least 1"),
        ({"model_parameters": {"nonsense": 1}}, "unknown parameter of resnet50"),
        ({"model_parameters": {"stage_blocks": (10**9, 1, 1, 1)}}, "weight tensors or more"),
    ],
)
def test_case_that_cannot_be_measured_is_refused_at_once(staged_run, task, case, changes, expected):
    odd = vary(case, **changes)
    replace_case(staged_run, task, odd)
    assert expected in refuse(staged_run, task, make_record(odd))


def write_steps(run, task, seconds) -> None:
    folder = find_start_dir(run, task)
    folder.mkdir(parents=True, exist_ok=True)
    numpy.save(folder / "step_seconds.npy", numpy.array(seconds))


@pytest.mark.parametrize(
    ("window", "steps", "is_valid"),
    [
        (2.0, [[0.199] * 10, [0.1, 0.3] * 5], True),
        # ends with a wait of milliseconds
        (0.010, [[0.0005] * 10] * 2, True),
        (2.0, [[0.21] * 10, [0.2] * 10], False),
        (2.0, [[0.18] * 10, [0.2] * 10], False),
        # a window that is shorter than steps of milliseconds
        (1e-6, [[0.0005] * 10] * 2, False),
    ],
)
def test_steps_of_training_add_up_to_their_window(staged_run, task, case, window, steps, is_valid):
    record = make_record(case, window_seconds=window)
    write_record(staged_run, task, record)
    write_steps(staged_run, task, steps)
    if is_valid:
        assert believe(staged_run, task).step_seconds.shape == (2, 10)
    else:
        message = refuse(staged_run, task, record)
        assert f"rank 0 took {10 * steps[0][0]:.6f} s in total, but window_s" in message
        assert f"is {window:.6f}" in message


SEARCHED = "64 -> 16"


@pytest.mark.parametrize(
    ("size", "searched", "expected"),
    [
        *((64, SEARCHED, ""), (16, SEARCHED, ""), (56, "max", "")),
        (8000, SEARCHED, "is 8000, not one of the sizes in '64 -> 16'"),
        (SEARCHED, SEARCHED, "is '64 -> 16'; allowed: a number"),
        (60, "max", "is 60, not a multiple of batch_size_step (8)"),
        (8000, "max", "is 8000, which is not among the sizes that the job tried"),
    ],
)
def test_batch_size_is_one_that_the_job_can_have_found(
    staged_run, task, case, size, searched, expected
):
    case = vary(case, batch_size_step=8)
    replace_case(staged_run, task, vary(case, batch_size_per_device=searched))
    trial = BatchTrial(64, False, 0, 1.0)
    record = make_record(vary(case, batch_size_per_device=size), batch_trials=(trial,))
    planned = {"batch_size_per_device": searched}
    if expected:
        assert expected in refuse(staged_run, task, record, planned)
    else:
        write_record(staged_run, task, record)
        assert believe(staged_run, task, planned).record.case.axes.batch_size == size


def make_epoch(number, **changes):
    return dataclasses.replace(Epoch(number, 0.5, 1.0, 1.0, 1.0, 1.5 * number), **changes)


@pytest.mark.parametrize(
    ("epochs", "samples", "expected"),
    [
        ((make_epoch(1), make_epoch(2)), 160, ""),
        ((make_epoch(1, top1=0.9),), 160, ""),
        ((make_epoch(1),), 160, "epochs has 1 entries, but the case trains 2"),
        ((), 160, "epochs has 0 entries, but the case trains 2"),
        ((make_epoch(1), make_epoch(3)), 160, "epochs[1] is epoch 3"),
        ((make_epoch(1), make_epoch(2, elapsed_seconds=1.0)), 160, "epochs[1] is epoch 2 after 1"),
        ((make_epoch(1), make_epoch(2, training_seconds=9.0)), 160, "epochs[1] is epoch 2 after 3"),
        ((make_epoch(1), make_epoch(2)), 161, "allowed: multiples of the global batch size, 16"),
        ((make_epoch(1), make_epoch(2)), 320, "steps for 160 samples, but trained_samples is 320"),
    ],
)
def test_training_is_that_of_its_epochs(staged_run, task, case, epochs, samples, expected):
    trained = dataclasses.replace(case, training=Training(epochs=2, target_top1=0.8))
    replace_case(staged_run, task, trained)
    window = float(len(epochs) or 2)
    record = make_record(trained, window, epochs=epochs, trained_samples=samples)
    write_steps(staged_run, task, [[window / 10] * 10] * 2)
    if expected:
        assert expected in refuse(staged_run, task, record, {"epochs": 2})
    else:
        write_record(staged_run, task, record)
        assert believe(staged_run, task, {"epochs": 2}).record == record


GENERATIONS = numpy.full((2, 10, 3), 0.1)


@pytest.mark.parametrize(
    ("seconds", "axes", "problem"),
    [
        (GENERATIONS, {"output_tokens": 3}, ""),
        (None, {"output_tokens": 3}, "is missing; this file must contain the times of"),
        (None, {}, ""),
        (GENERATIONS, {}, "shape is (2, 10, 3), not [ranks, steps, tokens] (2, 10, 0)"),
        (GENERATIONS[:, :9], {"output_tokens": 3}, "shape is (2, 9, 3), not [ranks, "),
        (-GENERATIONS, {"output_tokens": 3}, "has negative, infinite or NaN times"),
        (math.inf * GENERATIONS, {"output_tokens": 3}, "has negative, infinite or NaN times"),
        (2 * GENERATIONS, {"output_tokens": 3}, "the tokens of a step took longer than the step"),
    ],
)
def test_tokens_are_those_of_the_steps(seconds, axes, problem):
    record = make_record(vary(make_case(), mode="infer", **axes))
    found = find_token_problem(record, seconds, numpy.full((2, 10), 0.31))
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


def test_tokens_beside_a_record_are_read_and_judged(staged_run, task, case):
    path = write_record(staged_run, task, make_record(case))
    numpy.save(path.parent / "step_seconds.npy", numpy.full((2, 10), 0.2))
    numpy.save(path.parent / "token_seconds.npy", GENERATIONS)
    with pytest.raises(InvalidRecordError, match=r"token_seconds\.npy: shape is"):
        believe(staged_run, task)


OWN_CASE = make_case()
USE = CpuUse(2.0, 4, 0.5, 0.1, 0.0, (OtherProcess("x", 0.1),))
SOUND = NoiseReport(
    OWN_CASE.run_id,
    OWN_CASE.case_id,
    OWN_CASE.repeat,
    OWN_CASE.attempt,
    (HostNoise("node1", 1.0, (USE,), (), (USE,)),),
)


def test_sidecar_that_was_written_is_read_and_none_has_to_be_there(tmp_path):
    write_sidecar(tmp_path / HOST_NOISE_FILE, SOUND)
    content = (tmp_path / HOST_NOISE_FILE).read_bytes()
    sidecars = parse_sidecars({HOST_NOISE_FILE: SidecarFile(content, HOST_NOISE_FILE)})
    assert sidecars == Sidecars(SOUND)
    assert parse_sidecars({}) == NO_SIDECARS
    for one in (sidecars, NO_SIDECARS):
        assert find_sidecar_problem(one, make_record(OWN_CASE)) == ""


PEAKS = Peaks(OWN_CASE.run_id, OWN_CASE.case_id, OWN_CASE.repeat, OWN_CASE.attempt, "bf16", ())


@pytest.mark.parametrize(
    ("sidecars", "problem"),
    [
        (Sidecars(dataclasses.replace(SOUND, case_id="other")), "noise.json: case_id is 'other'"),
        (Sidecars(dataclasses.replace(SOUND, repeat=2)), "repeat is 2, "),
        (Sidecars(dataclasses.replace(SOUND, attempt=2)), "attempt is 2, "),
        (Sidecars(dataclasses.replace(SOUND, hosts=(HostNoise("n9", 1.0),))), "host 'n9'"),
        (Sidecars(peaks=PEAKS), f"{PEAKS_FILE}: number_format is 'bf16'"),
    ],
)
def test_sidecar_that_contradicts_the_record_is_named(sidecars, problem):
    assert problem in find_sidecar_problem(sidecars, make_record(OWN_CASE))


def test_host_noise_that_cannot_be_is_refused():
    host = dataclasses.replace(SOUND.hosts[0], window=(dataclasses.replace(USE, other_share=1.5),))
    content = json.dumps(dataclasses.asdict(dataclasses.replace(SOUND, hosts=(host,)))).encode()
    key = re.escape("a/host_noise.json: hosts[0].window[0].other_share is 1.5")
    with pytest.raises(ContractError, match=key):
        parse_sidecars({HOST_NOISE_FILE: SidecarFile(content, "a/host_noise.json")})
