"""Ranks against the topology, and the port of the framework's rendezvous; no MPI needed."""

import socket
from pathlib import Path

import pytest
from support.attempts import CASE
from support.cases import vary

from dlperf_slurm.worker.ranks import (
    PlacementError,
    check_placement,
    choose_address,
    find_free_port,
    look_up,
)

TWO_BY_TWO = vary(CASE, nodes=2, devices_per_node=2)


@pytest.mark.parametrize("hosts", [["a", "a", "b", "b"], ["a", "b", "a", "b"]])
def test_ranks_that_stand_as_the_topology_says_are_accepted(hosts):
    check_placement(TWO_BY_TWO, hosts)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (["a"], r"MPI has 1 rank\(s\), .*4.*mpi"),
        (["a", "a", "b", "b", "b"], r"MPI has 5 rank\(s\)"),
        (["a", "a", "a", "a"], "a: 4$"),
        (["a", "a", "a", "b"], "a: 3, b: 1$"),
        (["a", "b", "c", "d"], "a: 1, b: 1, c: 1, d: 1$"),
    ],
)
def test_other_ranks_are_refused_with_where_they_are(hosts, message):
    with pytest.raises(PlacementError, match=message):
        check_placement(TWO_BY_TWO, hosts)


def test_free_port_is_none_that_the_kernel_hands_out_and_another_for_each_job():
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    ports = {find_free_port() for _ in range(20)}
    assert all(20000 <= port < max(int(text.split()[0]), 21000) for port in ports)
    assert len(ports) > 10
    with socket.socket() as server:
        server.bind(("", find_free_port()))
        server.listen(1)


def test_address_is_the_one_that_another_host_sees():
    views = [{"a": "127.0.1.1", "b": "10.0.0.2"}, {"a": "10.0.0.1", "b": "127.0.1.1"}]
    hosts = ["a", "b"]
    assert [choose_address(host, hosts, views) for host in hosts] == ["10.0.0.1", "10.0.0.2"]
    # one host needs no name service to find itself
    assert choose_address("a", ["a", "a"], [{"a": "10.0.0.1"}] * 2) == "127.0.0.1"
    assert look_up("nowhere.invalid") == "nowhere.invalid"
