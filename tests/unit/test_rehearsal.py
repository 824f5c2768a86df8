"""The rehearsal without a GPU: what it covers, and its verdicts.

Its checks are tested by the faults that `make rehearse` puts into the adapters.
"""

import re

import pytest
import rehearse
from rehearsal.build import LIBRARIES, BuildError, list_functions
from rehearsal.checks import CHECKS
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
    count_products,
    count_tensor_cores,
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
    row = judge(TRAINING, {"error": "rank 1 ended with -11"})
    assert (row.verdict, row.is_sound) == ("FAILED", False)
    text = make_markdown([row], {"pytorch": "torch 2.13.0"})
    assert "1 FAILED. " in text
    assert f"- {TRAINING.name}: {RUNS}: rank 1 ended with -11\n" in text


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
