"""Ranks that find each other without MPI, by variables, sockets and a secret; in one process."""

import os
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy
import pytest
from support.sessions import ALONE

from dlperf_slurm.worker.joining import KINDS, Joining, parse_run_arguments, read_options, slurm
from dlperf_slurm.worker.joining.channel import HELLO_BYTES, NONCE_BYTES, Channel, StrangerError
from dlperf_slurm.worker.joining.meeting import LOOPBACK, Place, choose_ports, meet
from dlperf_slurm.worker.joining.network import add_suffix, choose_network
from dlperf_slurm.worker.joining.slurm import find_first_host
from dlperf_slurm.worker.joining.socket_communicator import SocketCommunicator
from dlperf_slurm.worker.joining.socket_world import FEWEST_SECRET_BYTES, read_secret
from dlperf_slurm.worker.joining.torchrun import find_place as find_place_of_torchrun
from dlperf_slurm.worker.ranks import PlacementError

SECRET = b"s" * 32
OTHER_SECRET = b"o" * 32
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "71",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "n[07-08]",
}
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "n07",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "71",
}


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-3,7]", "n1"),
        ("n[07-12],m[1-2]", "n07"),
        ("rack[2-3]n[01-04]", "rack2n01"),
        ("gpu-a[5]-eth,x", "gpu-a5-eth"),
    ],
)
def test_first_host_of_a_list_is_that_of_rank_0(nodes, first):
    assert find_first_host(nodes) == first


def test_variables_of_slurm_tell_the_place():
    assert slurm.find_place(SLURM) == Place(3, 4, "n07", "71.2")


def test_variables_of_torchrun_tell_the_place():
    assert find_place_of_torchrun(TORCHRUN) == Place(3, 4, "n07", "71.29500.")


def test_ranks_of_one_host_need_no_name_of_it():
    assert slurm.find_place({**SLURM, "SLURM_STEP_NUM_NODES": "1"}).first_host == LOOPBACK
    alone = find_place_of_torchrun({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"})
    assert alone.first_host == LOOPBACK


@pytest.mark.parametrize("name", ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST"])
def test_variable_that_slurm_did_not_set_is_named(name):
    with pytest.raises(PlacementError, match=name):
        slurm.find_place({key: value for key, value in SLURM.items() if key != name})


def test_words_of_the_worker_tell_all_of_how_to_join():
    joining = Joining("slurm", host_suffix="i", interface="ib0")
    options = parse_run_arguments([*joining.list_words(), "folder"])
    assert read_options(options) == joining
    assert Joining().list_words() == []
    assert set(KINDS) == {"mpi", "slurm", "torchrun"}


def test_launches_look_for_each_other_at_ports_of_their_own():
    assert choose_ports("71.0") == choose_ports("71.0")
    assert choose_ports("71.0")[0] != choose_ports("72.0")[0]
    assert len(set(choose_ports("71.0"))) == len(choose_ports("71.0"))
    assert all(20000 <= port < 32768 for port in choose_ports("71.0"))


@pytest.mark.parametrize("text", ["", "zz", "5e" * (FEWEST_SECRET_BYTES - 1)])
def test_secret_that_is_missing_or_short_is_refused(text):
    with pytest.raises(PlacementError, match="DLPERF_SLURM_SECRET is not there"):
        read_secret({"DLPERF_SLURM_SECRET": text})


def connect(first_secret=SECRET, second_secret=SECRET):
    """The two ends of a connection."""
    here, there = make_tcp_pair()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Channel, here, first_secret, True)
        second = pool.submit(Channel, there, second_secret, False)
        return first.result(), second.result()


def make_tcp_pair():
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(1)
        here = socket.create_connection(listener.getsockname())
        return here, listener.accept()[0]


def test_values_arrive_as_they_were_sent():
    first, second = connect()
    first.open()
    second.open()
    array = numpy.arange(100000.0).reshape(2, -1)
    first.send(("values", {"a": (1, None, "x")}))
    assert second.receive() == ("values", {"a": (1, None, "x")})
    sender = threading.Thread(target=second.send, args=(array,))
    sender.start()
    assert (first.receive() == array).all()
    sender.join()


def test_peer_with_another_secret_is_a_stranger():
    first, second = connect(SECRET, OTHER_SECRET)
    second.send("here I am")
    with pytest.raises(StrangerError, match="the secret"):
        first.receive()


class Trap:
    """Writes a file where its pickle is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


def test_pickle_of_a_stranger_is_not_read(tmp_path):
    first, second = connect(SECRET, OTHER_SECRET)
    second.send(Trap(str(tmp_path / "sprung")))
    with pytest.raises(StrangerError):
        first.receive()
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("change", ["repeat", "flip", "reflect"])
def test_message_that_was_meddled_with_is_refused(change):
    here, there = make_tcp_pair()
    relay, far = make_tcp_pair()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(Channel, here, SECRET, True)
        second = pool.submit(Channel, far, SECRET, False)
        relay.sendall(there.recv(NONCE_BYTES, socket.MSG_WAITALL))
        there.sendall(relay.recv(NONCE_BYTES, socket.MSG_WAITALL))
        first, second = first.result(), second.result()
    second.send("word")
    frame = relay.recv(1000)
    if change == "repeat":
        there.sendall(frame)
        assert first.receive() == "word"
        there.sendall(frame)
    elif change == "flip":
        there.sendall(frame[:-1] + bytes([frame[-1] ^ 1]))
    else:
        # a rank's own words, as if they were its peer's
        first.send("word")
        there.sendall(there.recv(1000))
    with pytest.raises(StrangerError):
        first.receive()


def test_first_message_of_any_length_is_not_waited_for():
    here, there = make_tcp_pair()
    there.sendall(bytes(NONCE_BYTES) + struct.pack("!Q32s", HELLO_BYTES + 1, b""))
    with pytest.raises(StrangerError, match="first message of 4097 bytes"):
        Channel(here, SECRET, is_first=True).receive()


def test_connection_that_ends_is_told():
    first, second = connect()
    second.close()
    with pytest.raises(ConnectionResetError):
        first.receive()


def gather_places(launch, size=3, secrets=None, seconds=20.0):
    """What each of these ranks meets, all in this process."""
    secrets = secrets or [SECRET] * size
    with ThreadPoolExecutor(size) as pool:
        met = [
            pool.submit(meet, Place(rank, size, LOOPBACK, launch), secrets[rank], seconds)
            for rank in range(size)
        ]
        return [one.result() for one in met]


def make_launch(request):
    return f"{os.getpid()}.{request.node.name}"


def test_all_ranks_meet_and_know_the_hosts(request):
    met = gather_places(make_launch(request))
    assert [sorted(one.channels) for one in met] == [[1, 2], [0], [0]]
    assert [one.hosts for one in met] == [[socket.gethostname()] * 3] * 3


def test_ranks_meet_where_others_hold_ports_and_strangers_call(request):
    launch = make_launch(request)
    with socket.socket() as foreign, socket.socket() as silent:
        foreign.bind(("", choose_ports(launch)[0]))
        foreign.listen(5)
        # it connects to the port at which rank 0 will listen, and says nothing
        thread = threading.Thread(target=call, args=(silent, choose_ports(launch)[1]))
        thread.start()
        met = gather_places(launch, size=2)
        thread.join()
    assert sorted(met[0].channels) == [1]


def call(silent, port):
    for _ in range(200):
        try:
            silent.connect((LOOPBACK, port))
            return
        except OSError:
            threading.Event().wait(0.02)


def test_rank_that_does_not_come_is_named(request):
    with pytest.raises(PlacementError, match=r"rank\(s\) 1, 2 of 3 .*rank 0"):
        meet(Place(0, 3, LOOPBACK, make_launch(request)), SECRET, 0.2)


def test_rank_with_another_secret_does_not_come(request):
    with pytest.raises(PlacementError, match=r"rank\(s\) 1 of 2 .*rank 0"):
        gather_places(make_launch(request), 2, [SECRET, OTHER_SECRET], 2.0)


def test_rank_0_that_is_not_there_is_told(request):
    with pytest.raises(PlacementError, match=r"rank 0 on 127"):
        meet(Place(1, 2, LOOPBACK, make_launch(request)), SECRET, 0.2)


def test_host_of_rank_0_that_nobody_knows_is_told(request):
    with pytest.raises(PlacementError, match=r"'no such host'.*rendezvous\.host_suffix"):
        meet(Place(1, 2, "no such host", make_launch(request)), SECRET, 20.0)


@pytest.fixture
def ranks(request, monkeypatch):
    """Three ranks in this process, which nothing ends, and whom they lost."""
    ends, lost = [], []
    monkeypatch.setattr("os._exit", ends.append)
    met = gather_places(make_launch(request))
    communicators = [
        SocketCommunicator(rank, one, lambda *what: lost.append(what))
        for rank, one in enumerate(met)
    ]
    communicators[0].lost, communicators[0].ends = lost, ends
    return communicators


def call_all(ranks, work):
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(work, ranks))


def test_values_come_together_by_rank(ranks):
    values = call_all(ranks, lambda one: one.allgather((one.Get_rank(), "x")))
    assert values == [[(0, "x"), (1, "x"), (2, "x")]] * 3
    gathered = call_all(ranks, lambda one: one.gather(numpy.full(3, one.Get_rank()), root=0))
    assert [array.tolist() for array in gathered[0]] == [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    assert gathered[1:] == [None, None]


def test_barrier_holds_until_the_last_rank_comes(ranks):
    with ThreadPoolExecutor(2) as pool:
        early = [pool.submit(one.Barrier) for one in ranks[:2]]
        assert not any(one.done() for one in early)
        ranks[2].Barrier()
        assert [one.result(10) for one in early] == [None, None]


def test_ranks_in_different_collectives_say_so(ranks):
    ranks[1].gather(1, root=0)
    ranks[2].gather(2, root=0)
    with pytest.raises(RuntimeError, match=r"rank 0 .*allgather, rank 1 .*gather"):
        ranks[0].allgather(0)


def test_ranks_that_all_fail_know_it(ranks):
    barriers = [one.Dup().Ibarrier() for one in ranks[:2]]
    assert not any(barrier.Test() for barrier in barriers)
    barriers.append(ranks[2].Dup().Ibarrier())
    await_that(lambda: all(barrier.Test() for barrier in barriers))
    assert ranks[0].ends == []


def test_rank_that_aborts_ends_all_others(ranks, capfd):
    ranks[1].Abort(1)
    await_that(lambda: len(ranks[0].ends) >= 3)
    written = capfd.readouterr().err
    assert "rank 0 ends: rank 1 has failed" in written
    assert "rank 2 ends: rank 1 has failed" in written
    assert ranks[0].lost == []


def test_end_of_a_process_is_seen_though_a_child_of_it_lives(ranks):
    """The child of a fork does not hold its parent's connections."""
    child = os.fork()
    if child == 0:
        threading.Event().wait(20)
        os.kill(os.getpid(), 9)
    ranks[1]._close()
    await_that(lambda: ranks[0].lost)
    assert ranks[0].lost[0] == (1, socket.gethostname())
    os.kill(child, 9)
    os.waitpid(child, 0)


def await_that(condition):
    for _ in range(500):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it did not come about in 10 s")


class TwoHosts:
    """The world of this rank and of one on another host."""

    hosts = ("n1", "n2")

    def __init__(self, other):
        self.other = other

    def exchange(self, value):
        return [value, self.other]


PLACEMENT = replace(
    ALONE,
    host="n1.cluster",
    master_address="10.0.0.1",
    master_port=20001,
    rank_addresses=("10.0.0.1:20001", "10.0.0.2:20002"),
    server_addresses=("10.0.0.1:20003", ""),
)


def test_frameworks_ranks_stand_on_the_network_of_the_interface():
    moved = choose_network(PLACEMENT, TwoHosts(("10.9.0.2", "")), Joining(interface="lo"))
    assert moved.master_address == "127.0.0.1"
    assert moved.master_port == 20001
    assert moved.rank_addresses == ("127.0.0.1:20001", "10.9.0.2:20002")
    assert moved.server_addresses == ("127.0.0.1:20003", "")


def test_suffix_stands_behind_the_short_name(monkeypatch):
    assert add_suffix("n1.cluster", "i") == "n1i"
    assert add_suffix("n1.cluster", "") == "n1.cluster"
    monkeypatch.setattr("socket.gethostbyname", {"n1i": "10.8.0.1"}.__getitem__)
    moved = choose_network(PLACEMENT, TwoHosts(("10.8.0.2", "")), Joining(host_suffix="i"))
    assert moved.rank_addresses == ("10.8.0.1:20001", "10.8.0.2:20002")


@pytest.mark.parametrize(
    ("joining", "message"),
    [
        (Joining(interface="no-such0"), r"n1\.cluster: .*'no-such0' .*IPv4"),
        (Joining(host_suffix=" no"), r"n1\.cluster: 'n1 no' .*host"),
    ],
)
def test_network_that_a_host_lacks_is_told_on_all_ranks(joining, message):
    with pytest.raises(PlacementError, match=message):
        choose_network(PLACEMENT, TwoHosts(("10.9.0.2", "")), joining)
    # where this host has it, and the other has not
    with pytest.raises(PlacementError, match="n2: it has none"):
        choose_network(PLACEMENT, TwoHosts(("", "n2: it has none")), Joining(interface="lo"))


def test_ranks_of_one_host_need_no_network():
    world = TwoHosts(("", "unasked"))
    world.hosts = ("n1", "n1")
    assert choose_network(PLACEMENT, world, Joining(interface="no-such0")) is PLACEMENT
