"""The nearest of the known names to a wrong one."""

import pytest

from dlperf_slurm.config.suggestions import suggest

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
