"""The published figures that ship with the package: readable, and those of the documents."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from dlperf_slurm.errors import InputError
from dlperf_slurm.published.figures import LATENCIES, TEXTS, list_sources, read_source

REFERENCE = Path(__file__).parents[2] / "data" / "published"
MAY_BE_EMPTY = {"note", "data_location", "variable_update", "compiler"}
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


def list_columns(source: str, *names: str) -> list[tuple]:
    return [*read_source(source)[[*names]].itertuples(index=False, name=None)]


@pytest.mark.parametrize("name", list_sources())
def test_every_figure_says_what_where_and_on_which_hardware(name):
    figures = read_source(name)
    assert figures.samples_per_s.gt(0).all()
    assert figures.world_size.ge(1).all()
    assert (figures[[text for text in TEXTS if text not in MAY_BE_EMPTY]] != "").all(axis=None)
    known = figures[[f"latency_{part}_ms" for part in LATENCIES]].notna().sum(axis=1)
    assert set(known) <= {0, len(LATENCIES)}


@pytest.mark.parametrize("reference", SOURCES_OF)
def test_no_figure_of_the_reference_is_lost_or_changed(reference):
    with (REFERENCE / reference).open(encoding="utf-8", newline="") as file:
        expected = Counter(
            (f"{row['path']}:{row['line']}", int(row["nodes"]), float(row["throughput"]))
            for row in csv.DictReader(file)
        )
    columns = ("where", "nodes", "samples_per_s")
    assert expected == Counter(
        figure for name in SOURCES_OF[reference] for figure in list_columns(name, *columns)
    )


def test_figure_of_inference_has_its_latencies_and_their_speedups():
    first = read_source("nvidia_mxnet_resnet50_inference").iloc[0]
    read = [[first[f"latency_{p}_{unit}"] for p in LATENCIES] for unit in ("ms", "speedup")]
    assert read == [[0.7, 0.68, 0.71, 0.84, 0.88], [1.9, 1.95, 1.9, 1.65, 1.7]]
    assert (first["mode"], first.batch_size_per_device) == ("infer", 1)
    assert first.published_speedup != first.published_speedup
    assert first.published_precision_speedup == 1.9


@pytest.mark.parametrize("name", ["../setup", "dlperf.csv"])
def test_unknown_source_lists_the_known_ones(name):
    with pytest.raises(InputError, match=r"known: dlperf, dlperf_repeats, .*tensorpack"):
        read_source(name)
