"""The rehearsal without a GPU: problems that its checks find in traces."""

import re

import pytest
from rehearsal.checks import CHECKS, find_problems, read_rank
from rehearsal.combinations import Combination
from rehearsal.report import make_markdown
from rehearsal.self_checks import SELF_CHECKS, TENSORFLOW_FAULTS
from rehearse import PROGRAMS, RUNS, judge

TRAINING = Combination("bert", "amp-fp16", "plain", 90, 2)
INFERENCE = Combination("resnet50", "tf32", "val", 80, 1)
FP32_TENSORFLOW = Combination("bert", "fp32", "plain", 90, 1, framework="tensorflow2")
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
FP32_PRODUCT = "product by=cublasSgemm_v2 device=0 type=0 compute=68 math=0"
INFERRED = {CONVOLUTION: 5, TF32_PRODUCT: 1, WAIT: 1}


def tell_rank(step, device=0):
    """Return the answer of observe.py for a rank of three such steps, on this GPU."""
    there = {text.replace("device=0", f"device={device}"): count for text, count in step.items()}
    return {"parameter_count": PARAMETERS, "intervals": [{}, there, there, there, {}]}


def find(combination, step):
    """Return the names of the checks that find problems in these steps on all ranks."""
    ranks = [read_rank(tell_rank(step, rank)) for rank in range(combination.ranks)]
    return set(find_problems(combination, ranks))


@pytest.mark.parametrize(
    ("combination", "check", "changes"),
    [
        (TRAINING, None, {}),
        (TRAINING, "waits", {"wait by=cudaStreamSynchronize": 1}),
        (TRAINING, "waits", {STEP_BEFORE: 0}),
        (TRAINING, "copies", {"copy by=cudaMemcpyAsync from=device to=pinned": 1}),
        (TRAINING, "memory", {"memory device=0 is_full=0": 1}),
        (TRAINING, "kernels", {ADAM: 0}),
        (TRAINING, "kernels", {"invalid name=too_many_threads": 1}),
        (TRAINING, "numbers", {FP32_PRODUCT: 1}),
        (TRAINING, "numbers", {"product by=cublasGemmEx device=0 type=2 compute=64 math=0": 1}),
        (TRAINING, "numbers", {PRODUCT: 0}),
        (TRAINING, "mean", {MEAN: 1}),
        (TRAINING, "mean", {"collective by=ncclBroadcast type=7 bytes=0 ranks=2 device=0": 1}),
        (TRAINING, "known", {"unknown name=cublasSgemv_v2": 1}),
        (TRAINING, "device", {"memory device=5 is_full=0": 1}),
        (INFERENCE, None, {}),
        (INFERENCE, "waits", {WAIT: 0}),
        (INFERENCE, "kernels", {"kernel device=0 name=FusedSgdMathFunctor": 1}),
        (INFERENCE, "numbers", {CONVOLUTION: 0}),
        (INFERENCE, "numbers", {CONVOLUTION.replace("cores=1", "cores=0"): 1}),
        (INFERENCE, "numbers", {FP32_PRODUCT: 1}),
        (FP32_TENSORFLOW, None, {FP32_PRODUCT: 48}),
        (FP32_TENSORFLOW, "numbers", {FP32_PRODUCT: 47, TF32_PRODUCT: 1}),
    ],
)
def test_what_is_wrong_in_a_step_is_found(combination, check, changes):
    whole = {TRAINING: STEP, INFERENCE: INFERRED}.get(combination, {})
    step = {text: count for text, count in {**whole, **changes}.items() if count}
    found = find(combination, step)
    assert check in found if check else found == set()


def list_faults(program):
    text = (PROGRAMS / program).read_text("utf-8")
    return {name.replace("_", " ") for name in re.findall(r"^def (\w+)\(\):$", text, re.M)}


def test_each_check_has_a_fault_that_it_must_find():
    assert sorted(SELF_CHECKS) == sorted(CHECKS)
    asked = {one.fault for faults in SELF_CHECKS.values() for one in faults}
    assert asked == list_faults("faults.py")
    assert {one.fault for one in TENSORFLOW_FAULTS} == list_faults("tensorflow_faults.py")


def test_rank_that_ends_early_is_a_failed_row_of_the_report():
    rows = [judge(TRAINING, {"error": "rank 1 ended with -11"})]
    assert (rows[0].verdict, rows[0].problems) == ("FAILED", {RUNS: ["rank 1 ended with -11"]})
    assert not rows[0].is_sound
    rows.append(judge(TRAINING, {"ranks": [tell_rank(STEP, rank) for rank in (0, 1)]}))
    text = make_markdown(rows, {"pytorch": "torch 2.13.0"})
    assert "1 FAILED, 1 ok. " in text
    assert f"- {TRAINING.name}: {RUNS}: rank 1 ended with -11\n" in text
    assert "| 2 collective, 1 copy, 3 kernel, 4 product, 1 wait; 0.0 MiB sent | ok |" in text
