"""Excerpts of logs, and helpers that read lines in the formats."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from dlperf_slurm.logs import load_format, read_runs
from dlperf_slurm.logs.lines import split_lines

EXCERPTS = Path(__file__).parent / "published" / "logs"


class Expected(NamedTuple):
    """Figures computed without the parsers: total samples over total time of the warm steps."""

    samples_per_s: float
    devices: int
    batch_size_per_device: int
    ranks_print: bool = False


LOGS = {
    "pytorch_examples/four_ranks.log": Expected(979.80012758, 4, 64, True),
    "pytorch_examples/one_process_2018.log": Expected(815.25416982, 1, 256),
    "pytorch_examples/one_process_2022.log": Expected(815.25416982, 1, 256),
    "gluonnlp_bert/two_workers.log": Expected(313.35001632, 2, 32, True),
    "gluonnlp_bert/one_process_2019.log": Expected(210.13461749, 4, 16),
    "gluonnlp_bert/one_process_2020.log": Expected(18.46153846, 1, 8),
    "gluoncv_imagenet/four_gpus.log": Expected(1499.10983524, 4, 64),
    "gluoncv_horovod/four_ranks.log": Expected(1198.90336008, 4, 32, True),
    "megengine_models/one_rank.log": Expected(199.37694705, 1, 64),
    "mindspore_models/one_rank_2023.log": Expected(128.94560107, 1, 32),
    "mindspore_models/two_ranks.log": Expected(266.26303779, 2, 32, True),
    "mxnet_module/two_nodes.log": Expected(1394.61610985, 4, 64, True),
    "oneflow_models_resnet50/two_ranks.log": Expected(733.76008830, 2, 64),
    "tensorpack/four_towers.log": Expected(525.30618426, 4, 64),
    # a complete log of dlperf_slurm.worker.scripts.tensorpack.resnet50
    "tensorpack/two_towers.log": Expected(229.72734335, 2, 4),
    "tensorflow1_models/before_2018.log": Expected(306.54405480, 1, 256),
    "tensorflow1_models/two_cycles.log": Expected(697.21029060, 1, 256),
    "tensorflow_models_bert/one_node.log": Expected(360.79448318, 4, 32),
    "oneflow_benchmark_cnn/two_nodes.log": Expected(19715.90380916, 16, 128),
    "oneflow_benchmark_cnn/two_epochs_without_times.log": Expected(119.96494518, 1, 32),
    "oneflow_benchmark_bert/one_node.log": Expected(998.91458631, 8, 24),
    "tf_cnn_benchmarks/horovod_four_ranks.log": Expected(1160.39, 4, 64, True),
    "tf_cnn_benchmarks/one_process.log": Expected(611.87, 2, 64),
    "horovod_synthetic/eight_gpus.log": Expected(2158.95051446, 8, 32),
    "horovod_synthetic/cpus_tagged.log": Expected(6.48615385, 2, 8, True),
    "paddleclas_engine/one_rank.log": Expected(1357.80205792, 8, 64),
    "paddle_models_resnet50/one_node.log": Expected(1424.86085343, 4, 128),
    "paddle_models_resnet50/without_times.log": Expected(1428.81062678, 4, 128),
    "paddle_models_bert/two_nodes.log": Expected(1275.93356039, 16, 32),
}
# logs of these formats lack values, which are given by file name or option
UNTOLD = (
    "megengine_models",
    "mindspore_models/one_rank",
    "paddle_models_resnet50",
    "paddleclas_engine",
    "pytorch_examples",
    "tensorflow1_models",
    "tensorflow_models_bert",
)


def split_content(content):
    """Return the labelled lines of a log's bytes."""
    return list(split_lines(content.splitlines(keepends=True)))


def list_excerpt(name):
    return (EXCERPTS / name).read_text().splitlines()


def read_all(format_name, lines):
    """Return the readings of all runs in these lines."""
    content = "".join(line + "\n" for line in lines).encode()
    return read_runs(load_format(format_name), split_content(content))


def read_one(format_name, lines):
    (reading,) = read_all(format_name, lines)
    return reading


def publish(format_name, lines, rule=0, **known):
    """Return the figure of the format's rule, with values known from a file's name."""
    reading = read_one(format_name, lines)
    identity = replace(reading.identity, **known)
    return load_format(format_name).RULES[rule].compute(reading, identity)


def tag(dealt):
    """Convert (rank, line) pairs to lines with Open MPI's labels."""
    return [f"[1,{rank}]<stdout>:{line}" for rank, line in dealt]


def deal(lines, is_timed):
    """Return (rank, line) pairs: of equal matches of `is_timed` the n-th is rank n's."""
    seen, dealt = {}, []
    for line in lines:
        step, rank = is_timed.match(line), 0
        if step is not None:
            rank = seen[step.group()] = seen.get(step.group(), -1) + 1
        dealt.append((rank, line))
    return dealt
