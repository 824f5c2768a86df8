"""The published figures that ship with the package: readable, and those of the documents."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from dlperf_slurm.errors import InputError
from dlperf_slurm.published.figures import LATENCIES, list_sources, read_source

REFERENCE = Path(__file__).parents[2] / "data" / "published"

# which sources hold the figures of a reference file
SOURCES_OF = {
    "dlperf_training.csv": ["dlperf"],
    "dlperf_repeats.csv": ["dlperf_repeats"],
    "dlperf_report_v1.csv": ["dlperf_report_v1"],
    "nvidia_mxnet_rn50_inference.csv": ["nvidia_mxnet_resnet50_inference"],
    "tensorpack.csv": ["tensorpack"],
    "nvidia_training.csv": [
        name
        for name in list_sources()
        if name.startswith("nvidia_") and not name.endswith("_inference")
    ],
}


def read_reference(name: str) -> list[dict[str, str]]:
    with (REFERENCE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", list_sources())
def test_every_figure_says_what_where_and_on_which_hardware(name):
    for figure in read_source(name):
        assert figure.samples_per_s > 0
        assert figure.world_size >= 1
        assert all([figure.source, figure.framework, figure.model, figure.precision])
        assert all([figure.hardware, figure.software, figure.table, figure.where])
        assert len(figure.latency_ms) in (0, len(LATENCIES))


@pytest.mark.parametrize("reference", SOURCES_OF)
def test_no_figure_of_the_reference_is_lost_or_changed(reference):
    expected = Counter(
        (f"{row['path']}:{row['line']}", int(row["nodes"]), float(row["throughput"]))
        for row in read_reference(reference)
    )
    shipped = Counter(
        (figure.where, figure.nodes, figure.samples_per_s)
        for name in SOURCES_OF[reference]
        for figure in read_source(name)
    )
    assert shipped == expected


def test_figure_of_inference_has_its_latencies_and_their_speedups():
    first = read_source("nvidia_mxnet_resnet50_inference")[0]
    assert first.batch_size_per_device == 1
    assert first.latency_ms == (0.7, 0.68, 0.71, 0.84, 0.88)
    assert first.latency_speedup == (1.9, 1.95, 1.9, 1.65, 1.7)
    assert (first.published_speedup, first.published_precision_speedup) == (None, 1.9)


def test_figure_of_tensorpack_has_the_location_of_its_data():
    places = {figure.data_location for figure in read_source("tensorpack")}
    assert {"gpu", "cpu", "python-queue"} <= places


def test_batch_size_that_was_not_printed_is_0():
    assert {f.batch_size_per_device for f in read_source("nvidia_paddle_resnet50")} == {0}


def test_summary_of_dlperf_pairs_speedups_with_their_compiler():
    speedups = {
        figure.compiler: (figure.samples_per_s, figure.published_speedup)
        for figure in read_source("dlperf_summary")
        if (figure.framework, figure.model, figure.precision)
        == ("tensorflow1", "resnet50", "amp-fp16")
    }
    assert speedups == {"xla": (29171.69, 24.34), "none": (24734.22, 26.17)}


@pytest.mark.parametrize("name", ["nvidia", "../setup", "", "dlperf.csv"])
def test_unknown_source_lists_the_known_ones(name):
    with pytest.raises(InputError, match=r"known: dlperf, dlperf_repeats, .*tensorpack"):
        read_source(name)
