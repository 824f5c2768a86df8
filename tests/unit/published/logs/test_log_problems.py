"""Excerpts of logs from which something is missing, or that tell something else: the reason."""

import pytest
from log_excerpts import list_excerpt, read_one
from support.problems import assert_problem


def without(*texts):
    """Leaves out the lines that hold one of the texts."""
    return lambda lines: [line for line in lines if not any(text in line for text in texts)]


def only(text):
    return lambda lines: [line for line in lines if text in line]


def told(before, after):
    return lambda lines: [line.replace(before, after) for line in lines]


def before_last(text):
    """Cuts the log before the last line that holds the text."""
    return lambda lines: lines[: max(i for i, line in enumerate(lines) if text in line)]


def without_first(text):
    return lambda lines: [
        line for line in lines if line is not next(each for each in lines if text in each)
    ]


def each_of_two_ranks(lines):
    return [f"[1,{rank}]<stdout>:{line}" for line in lines for rank in (0, 1)]


NO_STEP = ("no timed step",)
OF_LOGS = {
    "gluoncv_imagenet/four_gpus.log": [
        (told("num_epochs=2", "num_epochs=3"), ("ends after epoch 1", "2")),
    ],
    "gluoncv_horovod/four_ranks.log": [
        (without("Rank[2] Batch[24]\tTime cost"), ("epoch 0", "'Time cost'", "ranks 2")),
    ],
    "gluonnlp_bert/one_process_2020.log": [
        (without("Namespace", "Train cost"), ("ends at step 40", "'Train cost'")),
    ],
    "horovod_synthetic/eight_gpus.log": [
        (told("Number of GPUs: 8", "Number of GPUs: 16"), ("8 devices", "16")),
        (without("Iter #3:"), ("no line", "steps 2 and 4")),
        (without("Iter #0:"), ("lacks iteration 0",)),
        (without(*(f"Iter #{index}:" for index in range(2, 10))), ("mean", "268.0", "269.9")),
        (each_of_two_ranks, ("several ranks",)),
    ],
    "mindspore_models/two_ranks.log": [
        (before_last("epoch time"), ("missing", "1 of step 7", "2 or more of step 0")),
        (without("args_opt"), ("how many steps", "(train_steps)")),
    ],
    "mxnet_module/two_nodes.log": [
        (without("Node[1] Epoch[1] Time"), ("node 1", "'Time cost'", "epoch 1")),
    ],
    "oneflow_benchmark_cnn/two_nodes.log": [
        (without("num_examples"), ("how many iterations", "(its arguments)")),
    ],
    "oneflow_benchmark_bert/one_node.log": [
        (without("iter_num"), ("how many steps", "(iter_num)")),
    ],
    "oneflow_models_resnet50/two_ranks.log": [
        (without("[rank:1] [train], epoch: 0/1, iter: 40"), ("rank 1", "epoch 0", "step 30")),
    ],
    "paddle_models_resnet50/without_times.log": [
        (
            without(*(f"{digit}] \tloss" for digit in range(1, 10))),
            ("only some batches", "without times"),
        ),
    ],
    "paddleclas_engine/one_rank.log": [
        (told("ips: 1", "ips: 2"), ("batch size", "64, 101, 102, 103")),
        (only("[Eval]"), NO_STEP),
    ],
    "pytorch_examples/four_ranks.log": [
        (without_first("[0][11/"), ("3 of epoch 0 step 11", "4 or more of epoch 0 step 0")),
    ],
    "tensorflow1_models/two_cycles.log": [
        (before_last("Loss for final step"), ("ends at step 800", "1 of 2 cycles")),
        (only("accuracy"), NO_STEP),
        (only("average_examples_per_sec"), NO_STEP),
    ],
    "tf_cnn_benchmarks/horovod_four_ranks.log": [
        (without("total images/sec: 1160.39"), ("3 of 4 workers", "'total images/sec'")),
        (
            told("Variables:   horovod", "Variables:   parameter_server"),
            ("4 independent benchmarks", "same time"),
        ),
    ],
}


@pytest.mark.parametrize(
    ("excerpt", "change", "says"),
    [(name, change, says) for name, changes in OF_LOGS.items() for change, says in changes],
)
def test_what_is_missing_or_does_not_fit_is_named(excerpt, change, says):
    lines = list_excerpt(excerpt)
    changed = change(lines)
    assert changed
    assert changed != lines
    assert_problem(read_one(excerpt.split("/")[0], changed).problem, says=says)
