"""MindSpore's model zoo: labelled ranks, DLPerf's figure."""

import pytest
from log_excerpts import list_excerpt, publish, read_one

from dlperf_slurm.logs.publisher_rules import RuleError


def _list_sinks(milliseconds_by_rank, steps=10):
    lines = []
    for index, milliseconds in enumerate(zip(*milliseconds_by_rank)):
        lines += [
            f"epoch: 0, current epoch percent: 0, step: {(index + 1) * steps}, outputs are (9.{r})"
            for r in range(len(milliseconds))
        ]
        lines += [
            f"epoch time: {value:.3f} ms, per step time: {value / steps:.3f} ms"
            for value in milliseconds
        ]
    return lines


def test_dlperf_takes_all_ranks_times_of_steps_21_to_120():
    times = [[2400.0 + index % 7 + rank for index in range(14)] for rank in range(4)]
    seconds = sum(sum(row[2:12]) for row in times) / 1000
    known = {"devices": 4, "batch_size_per_device": 32}
    lines = _list_sinks(times)
    assert publish("mindspore_models", lines, **known) == round(128 / (seconds / 400), 2)
    with pytest.raises(RuleError, match="steps 21 to 120"):
        publish("mindspore_models", lines[: 8 * 11], **known)


def test_labelled_ranks_have_windows_of_their_own():
    lines = list_excerpt("mindspore_models/one_rank_2023.log")
    slower = [line.replace("epoch time: 12", "epoch time: 14") for line in lines]
    tagged = [f"0: {line}" for line in lines] + [f"1: {line}" for line in slower]
    first, second = read_one("mindspore_models", tagged).windows
    assert (first.rank, second.rank) == (0, 1)
    assert second.seconds == pytest.approx(first.seconds + 6)
