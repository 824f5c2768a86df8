"""The nearest of the known names to a wrong one."""

import pytest

from dlperf_slurm.config.suggestions import suggest
from dlperf_slurm.errors import InputError
from dlperf_slurm.published.figures import find_source_file
from dlperf_slurm.reports.notebook import find_plot
from dlperf_slurm.reports.plots import Plot

FIGURES = ("throughput-by-topology-resnet50-train", "latency-percentiles-resnet50-infer")


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("throughput-by-topolgy-resnet50-train", FIGURES[0]),
        ("energy", ""),
    ],
)
def test_part_of_a_long_name_is_enough(word, nearest):
    assert suggest(word, FIGURES) == (nearest and f". Did you mean {nearest!r}?")


def test_unknown_sources_and_figures_come_with_the_nearest_one():
    with pytest.raises(InputError, match=r"Did you mean 'nvidia_\w+'\?$"):
        find_source_file("nvidia")
    with pytest.raises(InputError, match=rf"Did you mean '{FIGURES[1]}'\?$"):
        find_plot([Plot(name, "", "", "", b"") for name in FIGURES], "lattency")
