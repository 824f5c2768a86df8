"""The rehearsal without a GPU: what its checks find in traces, and what it refuses."""

import re
from dataclasses import replace

import pytest
import rehearse
from rehearsal.build import LIBRARIES, BuildError, list_functions, write_others
from rehearsal.checks import CHECKS, find_problems, read_rank
from rehearsal.combinations import PRECISIONS, STEPS, Combination, list_combinations, make_case
from rehearsal.self_checks import SELF_CHECKS
from rehearse import PROGRAMS, RUNS, judge, judge_search, main

from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import list_models

TRAINING = Combination("bert", "amp-fp16", "plain", 90, 2)
INFERENCE = Combination("resnet50", "tf32", "val", 80, 1)
PARAMETERS = 1000
PRODUCT = "product by=cublasGemmEx device=0 type=2 compute=68 math=0"
MEAN = "collective by=ncclAllReduce type=7 bytes=2000 ranks=2 device=0"
ADAM = "kernel device=0 name=FusedAdamMathFunctor"
ATTENTION = "kernel device=0 name=fmha_cutlassF_f16"
STEP_BEFORE = "wait by=cudaEventSynchronize"
STEP = {
    PRODUCT: 4,
    MEAN: 2,
    ADAM: 1,
    ATTENTION: 2,
    "copy by=cudaMemcpyAsync from=device to=device": 1,
    STEP_BEFORE: 1,
}
WAIT = "wait by=cudaDeviceSynchronize"
CONVOLUTION = "convolution device=0 type=0 compute=0 has_tensor_cores=1"
TF32_PRODUCT = "product by=cublasSgemm_v2 device=0 type=0 compute=68 math=3"
INFERRED = {CONVOLUTION: 5, TF32_PRODUCT: 1, WAIT: 1}
FITS = {
    "status": "ok",
    "batch_size": 32,
    "step": 16,
    "trials": [[16, False], [32, False], [64, True], [48, True]],
    "peak_memory_bytes": 10**9,
}


def tell_rank(step, device=0):
    """A rank of three such steps, as observe.py tells it, on this GPU."""
    there = {text.replace("device=0", f"device={device}"): count for text, count in step.items()}
    return {"parameter_count": PARAMETERS, "intervals": [{}, there, there, there, {}]}


def find(combination, step):
    """The names of the checks that find something wrong with these steps on all ranks."""
    ranks = [read_rank(tell_rank(step, rank)) for rank in range(combination.ranks)]
    return set(find_problems(combination, ranks))


def test_sound_steps_have_no_problems():
    assert find(TRAINING, STEP) == set()
    assert find(INFERENCE, INFERRED) == set()


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("waits", {"wait by=cudaStreamSynchronize": 1}),
        ("waits", {STEP_BEFORE: 0}),
        ("waits", {STEP_BEFORE: 2}),
        ("copies", {"copy by=cudaMemcpyAsync from=pageable to=device": 1}),
        ("copies", {"copy by=cudaMemcpyAsync from=device to=pinned": 1}),
        ("memory", {"memory device=0 is_full=0": 1}),
        ("memory", {"release by=cudaFree": 1}),
        ("kernels", {ADAM: 0}),
        ("kernels", {ATTENTION: 0}),
        ("kernels", {"invalid name=too_many_threads": 1}),
        ("numbers", {"product by=cublasSgemm_v2 device=0 type=0 compute=68 math=0": 1}),
        ("numbers", {"product by=cublasGemmEx device=0 type=2 compute=64 math=0": 1}),
        ("numbers", {"product by=cublasGemmEx device=0 type=14 compute=68 math=0": 1}),
        ("numbers", {PRODUCT: 0}),
        ("mean", {MEAN: 1}),
        ("mean", {"collective by=ncclBroadcast type=7 bytes=0 ranks=2 device=0": 1}),
        ("known", {"unknown name=cublasSgemv_v2": 1}),
        ("device", {"memory device=5 is_full=0": 1}),
    ],
)
def test_what_is_wrong_in_a_training_step_is_found(check, changes):
    step = {text: count for text, count in {**STEP, **changes}.items() if count}
    assert check in find(TRAINING, step)


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("waits", {WAIT: 0}),
        ("waits", {WAIT: 2}),
        ("kernels", {"kernel device=0 name=FusedSgdMathFunctor": 1}),
        ("numbers", {CONVOLUTION: 0}),
        ("numbers", {"convolution device=0 type=0 compute=0 has_tensor_cores=0": 1}),
        ("numbers", {"product by=cublasSgemm_v2 device=0 type=0 compute=68 math=0": 1}),
    ],
)
def test_what_is_wrong_in_an_inference_is_found(check, changes):
    step = {text: count for text, count in {**INFERRED, **changes}.items() if count}
    assert check in find(INFERENCE, step)


def test_batches_from_the_host_come_from_pinned_memory():
    host = replace(TRAINING, step="host")
    pinned = "copy by=cudaMemcpyAsync from=pinned to=device"
    assert find(host, {**STEP, pinned: 6}) == set()
    assert find(host, STEP) == {"copies"}
    assert find(TRAINING, {**STEP, pinned: 6}) == {"copies"}
    pageable = "copy by=cudaMemcpyAsync from=pageable to=device"
    assert find(host, {**STEP, pinned: 5, pageable: 1}) == {"copies"}


def test_steps_that_differ_are_found():
    told = tell_rank(INFERRED)
    told["intervals"][2] = {**INFERRED, CONVOLUTION: 6}
    assert list(find_problems(INFERENCE, [read_rank(told)])) == ["alike"]


def test_each_check_has_a_fault_that_it_must_find():
    assert sorted(SELF_CHECKS) == sorted(CHECKS)
    program = (PROGRAMS / "faults.py").read_text("utf-8")
    known = {name.replace("_", " ") for name in re.findall(r"^            (\w+),$", program, re.M)}
    asked = {one.fault for faults in SELF_CHECKS.values() for one in faults}
    assert asked == known


def test_all_models_and_precisions_of_the_adapter_are_rehearsed():
    combinations = list(list_combinations())
    assert {one.model for one in combinations} == set(list_models())
    assert {one.step for one in combinations} == set(STEPS)
    adapter = load_adapter("pytorch")
    assert adapter.SUPPORTED["precision"] == PRECISIONS
    assert not any(adapter.find_unsupported(make_case(one)) for one in combinations)


def test_another_major_version_of_cuda_is_refused(tmp_path):
    folder = tmp_path / "nvidia" / "cu14" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudart.so.14").touch()
    with pytest.raises(BuildError, match=r"knows libcudart\.so\.13, and .* has libcudart\.so\.14"):
        list_functions(LIBRARIES[0], tmp_path)


def test_function_that_nobody_wrote_fails_and_says_so():
    quiet, other = write_others(LIBRARIES[0], ["cudaStreamDestroy", "cudaMalloc3D"]).splitlines()[
        2:
    ]
    assert quiet == "long cudaStreamDestroy(void) { return 0; }"
    assert other == 'long cudaMalloc3D(void) { rehearsal_refuse("cudaMalloc3D"); return 801; }'


def test_rank_that_ends_early_is_a_failed_row(capsys):
    row = judge(TRAINING, {"error": "rank 1 ended with -11"})
    assert (row.verdict, row.problems) == ("FAILED", {RUNS: ["rank 1 ended with -11"]})
    assert not row.is_sound


@pytest.mark.parametrize(
    "changes",
    [
        {"error": "no mpirun"},
        {"status": "failed", "reason": "unknown error"},
        {"batch_size": 16},
        {"trials": [[16, False], [32, False]]},
        {"trials": []},
        {"peak_memory_bytes": 2**40},
    ],
)
def test_search_that_memory_does_not_end_is_wrong(changes):
    assert list(judge_search(FITS)) == []
    assert list(judge_search({**FITS, **changes}))


def test_missing_environment_is_named_with_what_makes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(tmp_path))
    monkeypatch.setattr(rehearse.sys, "argv", ["rehearse.py"])
    assert main() == 1
    assert "env create --cuda pytorch" in capsys.readouterr().err
