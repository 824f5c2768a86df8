"""Topologies: what "2n8g" means, and what is none."""

import pytest

from dlperf_slurm.contract.topology import Topology, parse_topology


def test_topology_is_nodes_times_devices():
    topology = parse_topology("2n8g")
    assert topology == Topology(nodes=2, devices_per_node=8)
    assert topology.world_size == 16
    assert str(topology) == "2n8g"


@pytest.mark.parametrize("text", ["0n8g", "1n0g", "8g", "2N8G", " 2n8g", "2n8g\n", "01n8g"])
def test_impossible_topology_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match=r"topology.* NODESnDEVICESg .* '2n8g'"):
        parse_topology(text)


def test_topologies_sort_by_size_and_not_as_text():
    texts = ["10n1g", "2n1g", "1n8g", "1n16g"]
    assert [str(t) for t in sorted(map(parse_topology, texts))] == [
        "1n8g", "1n16g", "2n1g", "10n1g",
    ]  # fmt: skip
