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


def test_process_that_is_alone_is_told_about_mpi():
    with pytest.raises(PlacementError, match=r"MPI has 1 rank\(s\), .*4.*mpi"):
        check_placement(TWO_BY_TWO, ["a"])


def test_too_many_ranks_are_refused():
    with pytest.raises(PlacementError, match=r"MPI has 5 rank\(s\)"):
        check_placement(TWO_BY_TWO, ["a", "a", "b", "b", "b"])


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        (["a", "a", "a", "a"], "a: 4"),
        (["a", "a", "a", "b"], "a: 3, b: 1"),
        (["a", "b", "c", "d"], "a: 1, b: 1, c: 1, d: 1"),
    ],
)
def test_ranks_on_the_wrong_nodes_are_refused_with_where_they_are(hosts, found):
    with pytest.raises(PlacementError) as caught:
        check_placement(TWO_BY_TWO, hosts)
    assert str(caught.value).endswith("the launcher started " + found)


def test_free_port_can_be_listened_on():
    with socket.socket() as server:
        server.bind(("", find_free_port()))
        server.listen(1)


def test_free_port_is_none_that_the_kernel_hands_out():
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    lowest = int(text.split()[0])
    assert 20000 <= find_free_port() < max(lowest, 21000)


def test_jobs_that_ask_at_the_same_time_get_different_ports():
    assert len({find_free_port() for _ in range(20)}) > 10


def test_address_is_the_one_that_another_host_sees():
    views = [{"a": "127.0.1.1", "b": "10.0.0.2"}, {"a": "10.0.0.1", "b": "127.0.1.1"}]
    hosts = ["a", "b"]
    assert [choose_address(host, hosts, views) for host in hosts] == ["10.0.0.1", "10.0.0.2"]


def test_one_host_needs_no_name_service_to_find_itself():
    assert choose_address("a", ["a", "a"], [{"a": "10.0.0.1"}] * 2) == "127.0.0.1"


def test_name_that_nothing_knows_stays_a_name():
    assert look_up("nowhere.invalid") == "nowhere.invalid"
