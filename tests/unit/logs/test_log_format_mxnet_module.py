"""MXNet's Speedometer: the slowest node decides."""

from log_excerpts import list_excerpt, read_one

from dlperf_slurm.logs import compute_samples_per_s


def test_the_slowest_node_decides_for_all():
    lines = list_excerpt("mxnet_module/two_nodes.log")
    slowed = [line.replace("Speed: 7", "Speed: 4") if "Node[1]" in line else line for line in lines]
    reading = read_one("mxnet_module", slowed)
    rates = sorted(window.samples_per_s for window in reading.windows)
    assert rates[0] < 0.75 * rates[1]
    assert compute_samples_per_s(reading.windows, reading.identity) == rates[0]
