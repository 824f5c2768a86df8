"""Horovod's synthetic benchmark: what is missing or not one job."""

import pytest
from log_excerpts import list_excerpt, publish, read_one

from dlperf_slurm.logs import compute_samples_per_s


def test_the_figure_is_no_mean_of_rates_but_the_publisher_s_is():
    lines = list_excerpt("horovod_synthetic/eight_gpus.log")
    reading = read_one("horovod_synthetic", lines)
    assert compute_samples_per_s(reading.windows, reading.identity) == pytest.approx(2158.9505)
    assert publish("horovod_synthetic", lines) == 2159.0


def test_a_missing_iteration_is_noticed():
    lines = list_excerpt("horovod_synthetic/eight_gpus.log")
    first, last = (
        lines.index("Iter #0: 265.1 img/sec per GPU"),
        lines.index("Iter #9: 270.6 img/sec per GPU"),
    )
    inside = lines[: first + 3] + lines[first + 4 :]
    assert read_one("horovod_synthetic", inside).problem == (
        "the log has no line between steps 2 and 4"
    )
    begun = lines[:first] + lines[first + 1 :]
    assert read_one("horovod_synthetic", begun).problem == "the log lacks iteration 0"
    at_the_end = lines[: last - 7] + lines[last + 1 :]
    assert "some are missing" in read_one("horovod_synthetic", at_the_end).problem


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


def test_a_total_of_other_devices_than_announced_fails():
    lines = list_excerpt("horovod_synthetic/eight_gpus.log")
    lines = [line.replace("Number of GPUs: 8", "Number of GPUs: 16") for line in lines]
    assert read_one("horovod_synthetic", lines).problem == (
        "the total is of 8 devices, 16 were announced"
    )


def test_ranks_that_each_report_a_benchmark_are_no_job():
    lines = list_excerpt("horovod_synthetic/eight_gpus.log")
    tagged = [f"[1,{rank}]<stdout>:{line}" for line in lines for rank in (0, 1)]
    assert "each ran a benchmark of its own" in read_one("horovod_synthetic", tagged).problem
