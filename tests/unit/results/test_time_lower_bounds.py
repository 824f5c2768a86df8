"""The least time of an array task is its model's operations over what cores compute."""

import os

import pytest
from builders import make_site, write_matrix

from dlperf_slurm.jobs.plan import resolve
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.results import time_lower_bounds
from dlperf_slurm.worker.models import load_model

SITE = make_site(time_limit_minutes={"default": 1})
LARGE = "axes.batch_size_per_device=4096"


@pytest.fixture(autouse=True)
def pace(monkeypatch):
    monkeypatch.setattr(time_lower_bounds, "measure_flops_per_s", lambda: 5e10)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def find(*assignments, **settings):
    file = read_matrix(write_matrix(), assignments)
    site = SITE.model_copy(update=settings)
    return time_lower_bounds.compute_least_seconds(resolve(expand_matrix(file), site, 1001))


def test_it_is_the_work_of_all_steps_over_the_cores(home):
    seconds = find(LARGE)
    # 3 + 10 steps, forward and backward, at twice the measured pace
    work = 3 * load_model("resnet50").Definition().flops_per_sample * 4096 * 13
    assert seconds["pytorch-resnet50-1n1g-bs4096-fp32"] == pytest.approx(work / 1e11)
    # twice the work on twice the cores
    assert seconds["pytorch-resnet50-1n2g-bs4096-fp32"] == pytest.approx(work / 1e11)
    # four times the work on the two that there are
    assert seconds["pytorch-resnet50-2n2g-bs4096-fp32"] == pytest.approx(2 * work / 1e11)
    # a rank has both
    assert find(LARGE, cpus_per_rank=2)["pytorch-resnet50-1n1g-bs4096-fp32"] == pytest.approx(
        work / 2e11
    )


@pytest.mark.parametrize(
    "assignments",
    [
        ("axes.batch_size_per_device=1", "protocol.warmup_steps=0", "protocol.measured_steps=1"),
        (LARGE, 'axes.precision="amp-bf16"'),
        (LARGE, 'axes.mode="infer"'),
        ('axes.batch_size_per_device="max"',),
    ],
)
def test_what_ends_anyway_or_is_not_known_is_left_out(home, assignments):
    assert find(*assignments) == {}


def test_machine_is_measured(monkeypatch):
    monkeypatch.undo()
    assert 1e8 < time_lower_bounds.measure_flops_per_s() < 1e13
