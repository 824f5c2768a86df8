"""Horovod's synthetic benchmark: rates of a device and of the job, the total."""

import pytest
from log_excerpts import list_excerpt, publish, read_one

from dlperf_slurm.logs import compute_samples_per_s


def test_the_figure_is_no_mean_of_rates_but_the_publisher_s_is():
    lines = list_excerpt("horovod_synthetic/eight_gpus.log")
    reading = read_one("horovod_synthetic", lines)
    assert compute_samples_per_s(reading.windows, reading.identity) == pytest.approx(2158.9505)
    assert publish("horovod_synthetic", lines) == 2159.0


def test_a_rate_without_per_is_the_whole_job_s():
    lines = [
        "Number of GPUs: 4",
        "Iter #0: 400.0 img/sec GPU",
        "Iter #1: 440.0 img/sec GPU",
        "Img/sec per GPU: 105.0 +-9.8",
        "Total img/sec on 4 GPU(s): 420.0 +-39.2",
    ]
    reading = read_one("horovod_synthetic", lines)
    assert reading.problem == ""
    assert compute_samples_per_s(reading.windows, reading.identity) == pytest.approx(
        2 / (1 / 400 + 1 / 440)
    )
