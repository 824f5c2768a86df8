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
    Combination,
    list_combinations,
    list_tensorflow,
    make_case,
)
from rehearsal.report import make_markdown
from rehearsal.self_checks import SELF_CHECKS, TENSORFLOW_FAULTS
from rehearsal.stage import PROGRAMS
from rehearse import RUNS, judge, judge_search, main

from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import list_models
from dlperf_slurm.worker.support import find_unsupported

TRAINING = Combination("bert", "amp-fp16", "plain", 90, 2)
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


def test_all_models_and_precisions_of_tensorflow_are_rehearsed():
    adapter = load_adapter("tensorflow2")
    combinations = list(list_tensorflow())
    assert {one.model for one in combinations} == set(adapter.SUPPORTED["model"])
    assert {one.precision for one in combinations} == set(adapter.SUPPORTED["precision"])
    assert not any(find_unsupported(make_case(one)) for one in combinations)


def test_fault_that_kept_a_step_from_running_is_not_caught():
    rows = [judge(one, {"error": "the program ended"}) for one in TENSORFLOW_FAULTS]
    assert {row.verdict for row in rows} == {"MISSED"}
