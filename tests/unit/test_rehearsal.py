"""The rehearsal without a GPU: problems that its checks find in traces, and refused versions."""

import re
from dataclasses import replace

import pytest
import rehearse
from rehearsal.build import LIBRARIES, BuildError, list_functions
from rehearsal.checks import CHECKS, find_problems, read_rank
from rehearsal.combinations import (
    ALL_STEPS,
    PRECISIONS,
    TENSORFLOW_PRECISIONS,
    Combination,
    list_combinations,
    list_tensorflow,
    make_case,
)
from rehearsal.compiled import (
    CUBLAS,
    NUMBERS_CHECK,
    XLA,
    Compilation,
    count_products,
    count_tensor_cores,
    find_compiled_problems,
    list_broken,
    list_compilations,
)
from rehearsal.report import make_markdown
from rehearsal.self_checks import SELF_CHECKS, TENSORFLOW_FAULTS
from rehearse import PROGRAMS, RUNS, judge, judge_compiled, judge_search, main

from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import list_models
from dlperf_slurm.worker.support import find_unsupported

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
# text of a compiled module of XLA, shortened
MODULE = """
  %parameter_0 = f32[96,64]{1,0} parameter(0)
  %parameter_1 = bf16[64,96]{1,0} parameter(1)
  %dot.1 = f32[96,96]{1,0} dot(%parameter_0, %parameter_0), operand_precision={highest,highest}
  ROOT %dot.2 = f32[96,96]{1,0} dot(%parameter_1, %parameter_1), lhs_contracting_dims={0}
  %dot.3 = f32[96,96]{1,0} dot(%dot.1, %dot.1), algorithm=dot_bf16_bf16_f32
  %gemm.1 = (f32[96,96]{1,0}, s8[1]{0}) custom-call(%dot.1, %dot.2), \
custom_call_target="__cublas$lt$matmul", backend_config={"precision_config":\
{"operand_precision":["HIGHEST","DEFAULT"],"algorithm":"ALG_UNSET"}}
  %conv.1 = (f32[8]{0}, u8[0]{0}) custom-call(%parameter_0, %dot.1, %bias), \
operand_precision={highest,highest,default}, custom_call_target="__cudnn$convBiasActivationForward"
  %sort.1 = f32[8]{0} custom-call(%parameter_0), custom_call_target="SomethingElse"
"""
FITS = {
    "status": "ok",
    "batch_size": 32,
    "step": 16,
    "trials": [[16, False], [32, False], [64, True], [48, True]],
    "peak_memory_bytes": 10**9,
}


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


def test_batches_from_the_host_come_from_pinned_memory_on_a_stream_of_their_own():
    host = replace(TRAINING, step="host")
    pinned = "copy by=cudaMemcpyAsync from=pinned to=device stream=own"
    assert find(host, {**STEP, pinned: 6}) == set()
    assert find(host, STEP) == {"copies"}
    assert find(TRAINING, {**STEP, pinned: 6}) == {"copies"}
    for other in (pinned.replace("pinned", "pageable"), pinned.replace("own", "default")):
        assert find(host, {**STEP, pinned: 5, other: 1}) == {"copies"}


def test_steps_that_differ_are_found():
    told = tell_rank(INFERRED)
    told["intervals"][2] = {**INFERRED, CONVOLUTION: 6}
    assert list(find_problems(INFERENCE, [read_rank(told)])) == ["alike"]


def list_faults(program):
    text = (PROGRAMS / program).read_text("utf-8")
    return {name.replace("_", " ") for name in re.findall(r"^def (\w+)\(\):$", text, re.M)}


def test_each_check_has_a_fault_that_it_must_find():
    assert sorted(SELF_CHECKS) == sorted(CHECKS)
    asked = {one.fault for faults in SELF_CHECKS.values() for one in faults}
    assert asked == list_faults("faults.py")
    assert {one.fault for one in TENSORFLOW_FAULTS} == list_faults("tensorflow_faults.py")


def test_all_models_and_precisions_of_the_adapter_are_rehearsed():
    combinations = list(list_combinations())
    assert {one.model for one in combinations} == set(list_models())
    assert {one.step for one in combinations} == set(ALL_STEPS)
    assert load_adapter("pytorch").SUPPORTED["precision"] == PRECISIONS
    assert not any(find_unsupported(make_case(one)) for one in combinations)


def test_another_major_version_of_cuda_is_refused(tmp_path):
    folder = tmp_path / "nvidia" / "cu14" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcudart.so.14").touch()
    with pytest.raises(BuildError, match=r"libcudart\.so\.13.*libcudart\.so\.14"):
        list_functions(LIBRARIES[0], tmp_path)


def test_rank_that_ends_early_is_a_failed_row_of_the_report():
    rows = [judge(TRAINING, {"error": "rank 1 ended with -11"})]
    assert (rows[0].verdict, rows[0].problems) == ("FAILED", {RUNS: ["rank 1 ended with -11"]})
    assert not rows[0].is_sound
    rows.append(judge(TRAINING, {"ranks": [tell_rank(STEP, rank) for rank in (0, 1)]}))
    text = make_markdown(rows, {"pytorch": "torch 2.13.0"})
    assert "1 FAILED, 1 ok. " in text
    assert f"- {TRAINING.name}: {RUNS}: rank 1 ended with -11\n" in text
    assert "| 2 collective, 1 copy, 3 kernel, 4 product, 1 wait; 0.0 MiB sent | ok |" in text


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


def test_products_of_a_compiled_step_are_counted_by_library_type_and_precision():
    assert count_products(MODULE) == {
        "XLA f32 HIGHEST": 1,
        "XLA bf16 DEFAULT": 2,
        "cuBLAS f32 DEFAULT+HIGHEST": 1,
        "cuDNN f32 HIGHEST": 1,
        "SomethingElse f32 DEFAULT": 1,
    }


def test_instructions_of_tensor_cores_are_counted_by_the_type_they_read():
    ptx = (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1};\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%f1};\nfma.rn.f32 %f1;"
    )
    assert count_tensor_cores(ptx) == {"tf32": 1, "bf16": 1}


@pytest.mark.parametrize(
    ("model", "precision", "products_by", "products", "tensor_cores", "is_sound"),
    [
        ("bert", "fp32", XLA, {"XLA f32 HIGHEST": 9}, {}, True),
        ("bert", "fp32", XLA, {"XLA f32 DEFAULT": 9}, {}, False),
        ("bert", "fp32", XLA, {"XLA f32 HIGHEST": 9}, {"tf32": 4}, False),
        ("bert", "fp32", CUBLAS, {"cuBLAS f32 HIGHEST": 9}, {}, True),
        ("bert", "fp32", CUBLAS, {"cuBLAS f32 HIGHEST": 9, "Other f32 HIGHEST": 1}, {}, False),
        ("bert", "fp32", CUBLAS, {}, {}, False),
        ("bert", "tf32", XLA, {"XLA f32 DEFAULT": 9}, {"tf32": 4}, True),
        ("bert", "tf32", XLA, {"XLA f32 DEFAULT": 9}, {}, False),
        ("bert", "tf32", XLA, {"XLA f32 DEFAULT": 9}, {"tf32": 4, "bf16": 1}, False),
        ("resnet50", "tf32", CUBLAS, {"cuBLAS f32 DEFAULT": 3}, {}, False),
        ("resnet50", "tf32", CUBLAS, {"cuBLAS f32 DEFAULT": 3, "cuDNN f32 DEFAULT": 9}, {}, True),
        ("bert", "amp-bf16", XLA, {"XLA bf16 DEFAULT": 9}, {"bf16": 4}, True),
    ],
)
def test_compiled_step_has_the_numbers_of_its_precision(
    model, precision, products_by, products, tensor_cores, is_sound
):
    answer = {"products": products, "tensor_cores": tensor_cores}
    problems = find_compiled_problems(Compilation(model, precision, products_by), answer)
    assert list(problems) == ([] if is_sound else [NUMBERS_CHECK])


def test_all_models_are_rehearsed_with_the_other_frameworks():
    for framework, asked, precisions in (
        ("jax", list(list_compilations()), {"fp32", "tf32", "amp-bf16"}),
        ("tensorflow2", list(list_tensorflow()), set(TENSORFLOW_PRECISIONS)),
    ):
        adapter = load_adapter(framework)
        assert {one.model for one in asked} == set(adapter.SUPPORTED["model"])
        assert {one.precision for one in asked} == precisions <= set(adapter.SUPPORTED["precision"])
    assert not any(find_unsupported(make_case(one)) for one in list_tensorflow())


def test_fault_that_kept_a_step_from_running_is_not_caught():
    answer = {"error": "the program ended"}
    rows = [judge(one, answer) for one in TENSORFLOW_FAULTS]
    rows += [judge_compiled(one, answer) for one in list_broken()]
    assert {row.verdict for row in rows} == {"MISSED"}
