"""GluonCV's ResNet-50, of one process and of Horovod: whose lines are whose, DLPerf's figure."""

import pytest
from log_excerpts import publish

from dlperf_slurm.logs import find_formats
from dlperf_slurm.logs.lines import split_lines
from dlperf_slurm.logs.publisher_rules import RuleError


def test_speed_lines_of_mxnet_s_scripts_go_to_one_format_each():
    formats = {
        "Epoch[0] Batch [9]\tSpeed: 12.5 samples/sec\taccuracy=0.1\tlr=1": "gluoncv_imagenet",
        "Epoch[0] Batch[49]\tSpeed: 12.50 samples/sec": "gluoncv_horovod",
        "Epoch[0] Batch [40]\tSpeed: 12.50 samples/sec\taccuracy=0.1": "mxnet_module",
        "Epoch[0] Batch [20-40]\tSpeed: 12.50 samples/sec\taccuracy=0.1": "mxnet_module",
        "2020-08-26 18:06:39,031:INFO: Epoch[0] Batch [0-19]\tSpeed: 12.5 samples/sec\t"
        "LR: 0.1\taccuracy: 0.1": "nvidia_mxnet_resnet50",
    }
    for line, name in formats.items():
        assert find_formats(split_lines([line.encode() + b"\n"])) == [name]


def test_dlperf_takes_steps_21_to_120_of_the_only_epoch():
    rates = [380.0 + step % 17 for step in range(120)]
    lines = [
        f"INFO:root:Epoch[0] Batch[{step + 1}]\tSpeed: {rate:.2f} samples/sec"
        for step, rate in enumerate(rates)
    ]
    assert publish("gluoncv_horovod", lines) == round(sum(rates[20:]) / 100, 2)
    with pytest.raises(RuleError, match="the log has 119"):
        publish("gluoncv_horovod", lines[1:])
