"""Every axis is a column of the frames of cases, histories and comparisons, with a run's value."""

import dataclasses

import pytest
from axis_samples import AXIS_SAMPLES
from builders import make_axes, make_planned_case
from history_runs import RESULTS, add_run, set_manifest, stage_seven

import dlperf_slurm as dp
from dlperf_slurm.matrix.axes import AXES, make_case_id
from dlperf_slurm.results.history.run_cache import read_run_cache

# of the values that are no numbers: what the columns have
WORDS = {
    "batch_size_per_device": [(16, "16"), ("max", "max"), ("64 -> 32", "64 -> 32")],
    "loss_scale": [(128, 128), ("dynamic", None)],
}
VALUES = [
    (axis, value, shown)
    for axis in AXES
    for value, shown in WORDS.get(axis, [(AXIS_SAMPLES[axis], AXIS_SAMPLES[axis])])
]


def vary_axis(axis, value):
    """Make a case that differs from the default one only on this axis."""
    axes = dataclasses.replace(make_axes(), **{axis: value})
    return make_planned_case(case_id=make_case_id("resnet50", axes), axes=axes)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two runs of a case for each of VALUES, none of which has begun."""
    folder = tmp_path_factory.mktemp("axes")
    staged = stage_seven(folder)
    cases = {case.case_id: case for axis, value, _ in VALUES for case in [vary_axis(axis, value)]}
    for day in (1, 2):
        path = add_run(staged, day, results=folder / RESULTS, repeats=0)
        set_manifest(path, cases=tuple(cases.values()))
    return folder / RESULTS


def read_history(results):
    return dp.open_history(results).frame()


def read_run_cached_history(results):
    read_run_cache(results)
    assert read_run_cache(results).read_runs == 0
    return read_history(results)


def read_comparison(results):
    return dp.compare(*sorted(results.iterdir())).frame()


def read_cases(results):
    return dp.open_run(min(results.iterdir())).frame()


@pytest.mark.parametrize(
    "read", [read_cases, read_history, read_run_cached_history, read_comparison]
)
def test_value_on_each_axis_comes_out_of_every_frame(read, results):
    frame = read(results).drop_duplicates("case_id").set_index("case_id")
    frame = frame.astype(object).where(frame.notna(), None)
    found = [
        (axis, value, frame.loc[vary_axis(axis, value).case_id, axis]) for axis, value, _ in VALUES
    ]
    assert found == VALUES
