"""tf_cnn_benchmarks: totals of workers, what is no job."""

import pytest
from log_excerpts import list_excerpt, publish, read_all, read_one

from dlperf_slurm.logs import compute_samples_per_s


def test_the_lowest_total_decides_and_the_first_is_the_publisher_s():
    lines = list_excerpt("tf_cnn_benchmarks/horovod_four_ranks.log")
    reading = read_one("tf_cnn_benchmarks", lines)
    assert compute_samples_per_s(reading.windows, reading.identity) == 1160.39
    assert publish("tf_cnn_benchmarks", lines) == 1160.42


def test_a_parameter_server_s_log_says_so():
    lines = list_excerpt("tf_cnn_benchmarks/one_process.log")
    header = lines[: lines.index("Generating model")]
    problem = read_one("tf_cnn_benchmarks", [*header, "Running parameter server 0"]).problem
    assert "parameter server" in problem


@pytest.mark.parametrize(("kept", "problem"), [(0, "0 of 30 steps"), (2, "10 of 30 steps")])
def test_log_with_too_few_steps_is_no_result(kept, problem):
    lines = list_excerpt("tf_cnn_benchmarks/one_process.log")
    steps = [line for line in lines if "jitter" in line]
    short = [line for line in lines if line not in steps[kept:]]
    assert problem in read_one("tf_cnn_benchmarks", short).problem


def test_two_benchmarks_one_after_the_other_are_two_runs():
    lines = list_excerpt("tf_cnn_benchmarks/one_process.log")
    faster = [line.replace("611.87", "700.00") for line in lines]
    rates = [run.windows[0].samples_per_s for run in read_all("tf_cnn_benchmarks", lines + faster)]
    assert rates == [611.87, 700.0]


@pytest.mark.parametrize(
    ("old", "new", "name", "value"),
    [
        ("training", "forward-only", "mode", "infer"),
        ("(synthetic)", "", "data", "folder"),
        ("parameter_server", "horovod", "gradient_sync", "horovod"),
    ],
)
def test_what_the_header_states_is_of_the_case(old, new, name, value):
    lines = [line.replace(old, new) for line in list_excerpt("tf_cnn_benchmarks/one_process.log")]
    assert getattr(read_one("tf_cnn_benchmarks", lines).identity, name) == value
