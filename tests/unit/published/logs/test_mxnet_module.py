"""MXNet's Speedometer: the slowest node decides."""

import pytest
from log_excerpts import list_excerpt, publish, read_one

from dlperf_slurm.logs import compute_samples_per_s


def add_third_node(lines):
    """Add a third node to the log, which prints what the second does."""
    third = [line.replace("Node[1]", "Node[2]") for line in lines if "Node[1]" in line]
    return lines[:-2] + third + lines[-2:]


def test_devices_and_throughput_are_those_of_all_nodes():
    two = list_excerpt("mxnet_module/two_nodes.log")
    readings = [read_one("mxnet_module", lines) for lines in (two, add_third_node(two))]
    assert [(r.identity.nodes, r.identity.devices) for r in readings] == [(2, 4), (3, 6)]
    assert {r.identity.batch_size_per_device for r in readings} == {64}
    # the first node is the slowest one of both logs
    rates = [compute_samples_per_s(r.windows, r.identity) for r in readings]
    assert rates[1] == pytest.approx(rates[0] * 3 / 2)
    # the publisher's figure is the first node's times the nodes
    figures = [publish("mxnet_module", lines) for lines in (two, add_third_node(two))]
    assert figures[1] == pytest.approx(figures[0] * 3 / 2)
