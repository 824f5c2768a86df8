"""GluonNLP's BERT: workers, ends of runs, DLPerf's figure."""

import re

import pytest
from log_excerpts import deal, list_excerpt, publish, read_all, read_one, tag

from dlperf_slurm.logs.publisher_rules import RuleError

TIMED = re.compile(r"INFO:root:\[step \d+\](?=.*\tlr=)")


def test_the_slowest_labelled_worker_decides():
    dealt = deal(list_excerpt("gluonnlp_bert/two_workers.log"), TIMED)
    tagged = [
        (rank, re.sub(r"latency=\S+", "latency=400.0", line) if rank else line)
        for rank, line in dealt
    ]
    reading = read_one("gluonnlp_bert", tag(tagged))
    identity, (first, second) = reading.identity, reading.windows
    # the total batch is shared out among the workers
    assert (identity.devices, identity.batch_size_per_device) == (2, 32)
    assert (identity.model, identity.precision) == ("bert", "amp-fp16")
    assert (first.rank, second.rank) == (0, 1)
    assert second.seconds == pytest.approx(18 * 0.4)
    assert first.seconds < 18 * 0.22


def test_an_attempt_that_was_aborted_is_a_run_of_its_own():
    lines = list_excerpt("gluonnlp_bert/one_process_2019.log")
    aborted, whole = read_all("gluonnlp_bert", lines[:4] + lines)
    assert "step 99 of 200" in aborted.problem
    assert whole.problem == ""
    assert whole.windows == read_one("gluonnlp_bert", lines).windows


def test_without_announced_steps_the_end_is_the_line_with_the_cost():
    lines = [
        line.replace("num_steps=", "other_steps=")
        for line in list_excerpt("gluonnlp_bert/one_process_2020.log")
    ]
    assert read_one("gluonnlp_bert", lines).problem == ""
    assert "'Train cost'" in read_one("gluonnlp_bert", lines[:-1]).problem


def test_dlperf_takes_the_median_worker_of_steps_101_to_200():
    latencies = [
        [200.0 + (step * 3 + worker * 7) % 13 for worker in (0, 1, 2)] for step in range(200)
    ]
    lines = [
        f"INFO:root:[step {step + 1}]\tmlm_loss=9.{worker}0000\tnsp_loss= 0.69\t"
        f"throughput=4.0K tks/s\tlr=0.0001000 time=0.20, latency={latency:.1f} ms/batch"
        for step, row in enumerate(latencies)
        for worker, latency in enumerate(row)
    ]
    rates = [1000 / sorted(row)[1] * 96 for row in latencies[100:]]
    known = {"devices": 3, "batch_size_per_device": 32}
    assert publish("gluonnlp_bert", lines, **known) == round(sum(rates) / 100, 2)
    with pytest.raises(RuleError, match=r"200 lines.* 597 such lines"):
        publish("gluonnlp_bert", lines[3:], **known)


def test_accumulated_micro_batches_count_as_steps():
    lines = list_excerpt("gluonnlp_bert/one_process_2020.log")
    accumulated = [line.replace("num_accumulated=1", "num_accumulated=4") for line in lines]
    (once,), (four_times,) = (
        read_one("gluonnlp_bert", log).windows for log in (lines, accumulated)
    )
    assert (four_times.steps, four_times.seconds) == (4 * once.steps, once.seconds)
