"""PaddlePaddle/models: DLPerf's figures."""

import pytest
from log_excerpts import list_excerpt, publish, read_one

from dlperf_slurm.logs import compute_samples_per_s


def test_dlperf_s_two_figures_of_resnet50():
    seconds = [5.0, *(0.35 + (batch % 9) / 100 for batch in range(1, 120))]
    times, now = [], 0.0
    for value in seconds:
        now += value
        times.append(now)
    clock = [f"18:{time // 60:02.0f}:{time % 60:06.3f}".replace(".", ",") for time in times]
    lines = [
        f"2020-08-26 {clock[batch]}-INFO: [Pass 0, train batch {batch}] \tloss 6.9, acc1 0.0, "
        f"acc5 0.0, lr 0.00100, elapse {value:.4f} sec"
        for batch, value in enumerate(seconds)
    ]
    known = {"devices": 8, "batch_size_per_device": 128}
    by_elapse = sum(round(1024 / value, 4) for value in seconds[20:]) / 100
    assert publish("paddle_models_resnet50", lines, **known) == round(by_elapse, 2)
    by_clock = 1024 * 100 / (round(times[119], 3) - round(times[19], 3))
    assert publish("paddle_models_resnet50", lines, rule=1, **known) == round(by_clock, 2)


def test_dlperf_s_figure_of_bert_multiplies_by_one_node_s_devices():
    speeds = [5 + step % 7 / 10 for step in range(120)]
    lines = [
        f"epoch: 1, progress: 1/1, step: {step + 1}, loss: 9.0, ppl: 31000.1, "
        f"next_sent_acc: 0.5, speed: {speed:f} steps/s, file: wiki.gz"
        for step, speed in enumerate(speeds)
    ]
    known = {"nodes": 2, "devices": 16, "batch_size_per_device": 32}
    expected = sum(round(speed * 256, 4) for speed in speeds[20:]) / 100
    assert publish("paddle_models_bert", lines, **known) == round(expected, 2)


def test_bert_devices_are_those_of_all_nodes_and_its_speed_counts_each_node():
    lines = list_excerpt("paddle_models_bert/two_nodes.log")
    four = [line.replace("trainers_num:2", "trainers_num:4") for line in lines]
    two, doubled = (read_one("paddle_models_bert", log) for log in (lines, four))
    identities = [reading.identity for reading in (two, doubled)]
    assert [(i.nodes, i.devices) for i in identities] == [(2, 16), (4, 32)]
    # the printed speed is of all trainers together: more of them make no more of it
    rates = [compute_samples_per_s(r.windows, r.identity) for r in (two, doubled)]
    assert rates[1] == pytest.approx(rates[0])
