"""References: what is written of each run, and read back."""

import pytest
from builders import make_manifest, make_outcomes, make_planned_case

from dlperf_slurm.errors import InputError
from dlperf_slurm.results.reference import read_reference, serialize_reference


def test_blocks_are_kept_apart_and_each_is_one_value(tmp_path):
    planned = make_planned_case(repeats=4, blocks=2)
    # repeats 1 and 3 are in the first block
    outcomes = make_outcomes(planned, [100.0, 200.0, 110.0, 220.0])
    file = tmp_path / "reference.toml"
    file.write_text(serialize_reference([(make_manifest(), [outcomes])]), encoding="utf-8")
    (case,) = read_reference(file)
    (run,) = case.runs
    assert [[round(value, 6) for value in block] for block in run.samples_per_s] == [
        [100, 110], [200, 220],
    ]  # fmt: skip
    assert [round(value, 6) for value in run.units] == [105, 210]
    assert case.work["case.axes.precision"] == ("fp32",)


def test_runs_that_did_other_work_make_no_reference():
    planned = make_planned_case()
    runs = [
        (
            make_manifest(run_id=f"run{count}"),
            [make_outcomes(planned, [100.0], parameter_count=count)],
        )
        for count in (7, 8)
    ]
    with pytest.raises(InputError, match="parameter_count 7 and 8"):
        serialize_reference(runs)
