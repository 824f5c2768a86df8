"""Excerpts of logs in formats of which no whole log is at hand: what is read from them."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from log_excerpts import EXCERPTS, split_content
from reference_logs import FOLDER, list_reference_logs, read_published_rows

from dlperf_slurm.logs import (
    compute_samples_per_s,
    find_formats,
    list_formats,
    load_format,
    read_runs,
)
from dlperf_slurm.logs.lines import read_lines

# the same on any Python, and hundreds
pytestmark = pytest.mark.slow


class Expected(NamedTuple):
    """Computed apart from the parsers: total samples over total time of the warm steps."""

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
    # a whole one, of dlperf_slurm.worker.scripts.tensorpack.resnet50
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
# what a log of these formats does not tell is given by name or option
UNTOLD = (
    "megengine_models",
    "mindspore_models/one_rank",
    "paddle_models_resnet50",
    "paddleclas_engine",
    "pytorch_examples",
    "tensorflow1_models",
    "tensorflow_models_bert",
)


def _read(format_name, content):
    return read_runs(load_format(format_name), split_content(content))


def _read_figure(name, content):
    """(samples/s, problem) of a log that is to hold one run; no samples/s with a problem."""
    format_name = name.split("/")[0]
    (reading,) = _read(format_name, content)
    if reading.problem:
        return None, reading.problem
    expected = LOGS[name]
    identity = reading.identity
    identity = replace(
        identity,
        devices=identity.devices or expected.devices,
        batch_size_per_device=identity.batch_size_per_device or expected.batch_size_per_device,
    )
    return compute_samples_per_s(reading.windows, identity), ""


def _content(name):
    return (EXCERPTS / name).read_bytes()


@pytest.fixture(params=sorted(LOGS))
def name(request):
    return request.param


def test_every_format_has_a_log_with_its_expected_figure():
    published = {path for row in read_published_rows() for path in FOLDER.glob(row.log)}
    claims = [find_formats(read_lines(path)) for path in published & set(list_reference_logs())]
    covered = {name.split("/")[0] for name in LOGS}.union(*claims)
    assert [name for name in list_formats() if name not in covered] == []


def test_every_excerpt_has_its_expected_figure():
    assert {path.relative_to(EXCERPTS).as_posix() for path in EXCERPTS.rglob("*.log")} == set(LOGS)


def test_one_format_claims_the_excerpt(name):
    assert find_formats(split_content(_content(name))) == [name.split("/")[0]]


def test_throughput_is_warm_samples_over_their_time(name):
    samples_per_s, problem = _read_figure(name, _content(name))
    assert problem == ""
    assert samples_per_s == pytest.approx(LOGS[name].samples_per_s, rel=1e-8)


def test_identity_is_what_the_log_tells(name):
    format_name = name.split("/")[0]
    (reading,) = _read(format_name, _content(name))
    expected = LOGS[name]
    untold = (0,) if name.startswith(UNTOLD) else ()
    assert reading.identity.devices in (expected.devices, *untold)
    assert reading.identity.batch_size_per_device in (expected.batch_size_per_device, *untold)


def test_a_cut_log_fails_or_gives_the_whole_log_s_figure(name):
    content = _content(name)
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    cuts = {end + shift for end in ends for shift in (-40, -9, -5, -3, -2, -1, 0)}
    figures = {
        cut: _read_figure(name, content[:cut])[0] for cut in sorted(cuts) if 0 <= cut < len(content)
    }
    whole = pytest.approx(LOGS[name].samples_per_s, rel=1e-8)
    assert {
        cut for cut, figure in figures.items() if figure is not None and figure != whole
    } == set()
    assert sum(figure is None for figure in figures.values()) > len(figures) / 2


def test_windows_line_ends_change_nothing(name):
    figure, problem = _read_figure(name, _content(name).replace(b"\n", b"\r\n"))
    assert problem == ""
    assert figure == pytest.approx(LOGS[name].samples_per_s, rel=1e-8)


def test_a_log_doubled_by_tee_gives_the_same_figure(name):
    doubled = b"".join(line * 2 for line in _content(name).splitlines(keepends=True))
    assert _read_figure(name, doubled)[0] == pytest.approx(LOGS[name].samples_per_s, rel=1e-8)


@pytest.mark.parametrize("label", ["[1,0]<stdout>:", "0: ", "[1,0]<stderr>:\x1b[0m"])
@pytest.mark.parametrize("name", sorted(name for name in LOGS if not LOGS[name].ranks_print))
def test_labels_of_the_only_rank_that_prints_change_nothing(name, label):
    lines = _content(name).splitlines(keepends=True)
    figure, problem = _read_figure(name, b"".join(label.encode() + line for line in lines))
    assert problem == ""
    assert figure == pytest.approx(LOGS[name].samples_per_s, rel=1e-8)


def test_the_echoed_command_and_quoted_lines_are_no_measurement(name):
    timed = max(_content(name).splitlines(), key=len)
    decoys = b"".join(
        prefix + timed + b"\n" for prefix in (b"+ echo ", b"> ", b"grep '", b"# e.g. ", b"| ")
    )
    figure, problem = _read_figure(name, decoys + _content(name) + decoys)
    assert problem == ""
    assert figure == pytest.approx(LOGS[name].samples_per_s, rel=1e-8)


def test_broken_bytes_neither_raise_nor_give_a_figure(name):
    content = bytearray(_content(name))
    for index in range(0, len(content), 7):
        content[index] = (content[index] * 31 + index) % 256
    for reading in _read(name.split("/")[0], bytes(content)):
        assert reading.problem or not reading.windows


def test_numbers_without_end_do_not_raise(name):
    digits = b"9" * 5000
    content = b"".join(
        part if not part.isdigit() else digits
        for line in _content(name).splitlines(keepends=True)
        for part in _split_digits(line)
    )
    for reading in _read(name.split("/")[0], content):
        assert reading.problem or not reading.windows


def _split_digits(line):
    parts, kind = [b""], False
    for byte in line:
        character = bytes([byte])
        if character.isdigit() != kind:
            parts.append(b"")
            kind = not kind
        parts[-1] += character
    return parts


def test_an_empty_log_has_no_timed_step(name):
    (reading,) = _read(name.split("/")[0], b"")
    assert reading.problem == "the log holds no timed step" or "missing" in reading.problem
    assert reading.windows == ()


def test_no_log_of_another_format_is_taken_for_one_of_these_formats():
    own = {name.split("/")[0] for name in LOGS}
    logs = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".csv"]
    assert logs, f"{FOLDER} holds no logs"
    claims = {str(path): own & set(find_formats(read_lines(path))) for path in logs}
    assert {path: names for path, names in claims.items() if names} == {}
