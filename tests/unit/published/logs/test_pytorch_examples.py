"""PyTorch's ImageNet example: ranks told apart, whole epochs, DLPerf's figure."""

import re
from dataclasses import replace

import pytest
from log_excerpts import deal, list_excerpt, publish, read_one, tag
from support.problems import assert_problem

from dlperf_slurm.logs import compute_samples_per_s
from dlperf_slurm.logs.publisher_rules import RuleError

TIMED = re.compile(r"Epoch: \[\d+\]\[ *\d+")


def _pytorch_batch(index, batches, seconds, mean):
    return (
        f"Epoch: [0][{index:3d}/{batches}]\tTime {seconds:6.3f} ({mean:6.3f})\tData  0.010 "
        f"( 0.020)\tLoss {7 + index / 7:.4e} (7.0000e+00)\tAcc@1   0.78 (  0.39)"
    )


def test_the_slowest_labelled_rank_decides():
    dealt = deal(list_excerpt("pytorch_examples/four_ranks.log"), TIMED)
    slowed = [
        (rank, line.replace("Time  0.", "Time  1.") if rank == 2 else line) for rank, line in dealt
    ]
    reading = read_one("pytorch_examples", tag(slowed))
    windows = {window.rank: window for window in reading.windows}
    assert sorted(windows) == [0, 1, 2, 3]
    assert windows[2].seconds == pytest.approx(windows[1].seconds + 18, rel=0.02)
    identity = replace(reading.identity, devices=4, batch_size_per_device=64)
    assert compute_samples_per_s(windows.values(), identity) == pytest.approx(
        18 * 256 / windows[2].seconds
    )


def test_a_rank_that_stops_early_is_named():
    dealt = deal(list_excerpt("pytorch_examples/four_ranks.log"), TIMED)
    lost = [(rank, line) for rank, line in dealt if rank != 3 or "][2" not in line]
    problem = read_one("pytorch_examples", tag(lost)).problem
    assert_problem(problem, says=("rank 3", "epoch 0 step 20"))


def test_ranks_that_write_one_after_the_other_are_as_good_if_there_is_one_for_each_gpu():
    dealt = deal(list_excerpt("pytorch_examples/four_ranks.log"), TIMED)
    blocks = [line for wanted in range(4) for rank, line in dealt if rank == wanted]
    assert read_one("pytorch_examples", blocks).problem == ""
    lines = [line for rank, line in dealt if rank < 3]
    assert_problem(read_one("pytorch_examples", lines).problem, says=("3 ranks", "4", "GPU"))


def test_two_nodes_with_the_same_gpu_numbers_may_share_a_log():
    lines = [
        line.replace("Use GPU: 2", "Use GPU: 0").replace("Use GPU: 3", "Use GPU: 1")
        for line in list_excerpt("pytorch_examples/four_ranks.log")
    ]
    assert read_one("pytorch_examples", lines).problem == ""


def test_later_epochs_do_not_change_the_figure():
    lines = list_excerpt("pytorch_examples/four_ranks.log")
    second = [
        line.replace("Epoch: [0]", "Epoch: [1]").replace("Time  0.2", "Time  0.9")
        for line in lines
        if line.startswith("Epoch")
    ]
    one, two = (read_one("pytorch_examples", log) for log in (lines, lines + second))
    assert two.problem == ""
    assert two.windows == one.windows


def test_dlperf_takes_lines_of_all_ranks_in_the_log_s_order():
    seconds = [0.4 + (index % 11) / 100 for index in range(140)]
    lines = [_pytorch_batch(i, 140, seconds[i], 0.5) for i in range(140)]
    expected = round(128 * 8 / (sum(seconds[26:126]) / 100), 2)
    known = {"devices": 8, "batch_size_per_device": 128}
    assert publish("pytorch_examples", lines, **known) == expected
    with pytest.raises(RuleError, match=r"120 values.* 94$"):
        publish("pytorch_examples", lines[:100], **known)
