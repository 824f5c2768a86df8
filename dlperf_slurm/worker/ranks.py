"""MPI ranks: who is where, the rendezvous of the framework, gathering, and ending together."""

import os
import random
import socket
import time
from typing import Any, Dict, List, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement

FAILURE_GRACE_SECONDS = 5.0
LOWEST_PORT = 20000


class PlacementError(RuntimeError):
    """The launcher did not start the ranks as the topology asks for."""


class World:
    """The MPI ranks of one array task."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator
        # failing ranks meet here, while the others may be in any collective of the first one
        self._failure_communicator = communicator.Dup()
        self.rank = communicator.Get_rank()
        self.size = communicator.Get_size()
        # by rank, once they are placed
        self.hosts: Tuple[str, ...] = ()

    def barrier(self) -> None:
        self._communicator.Barrier()

    def gather(self, value: Any) -> List[Any]:
        """Values of all ranks by rank on rank 0, an empty list elsewhere."""
        return self._communicator.gather(value, root=0) or []

    def exchange(self, value: Any) -> List[Any]:
        """Values of all ranks by rank, on every rank."""
        return list(self._communicator.allgather(value))

    def place(self, case: Case) -> Placement:
        """Check that the ranks stand as the topology says, and agree on a rendezvous.

        Raises PlacementError on all ranks alike.
        """
        hosts = self._communicator.allgather(socket.gethostname())
        self.hosts = tuple(hosts)
        check_placement(case, hosts)
        host = hosts[self.rank]
        views = self._communicator.allgather({name: look_up(name) for name in set(hosts)})
        address = choose_address(host, hosts, views)
        local_rank = hosts[: self.rank].count(host)
        own = f"{address}:{find_free_port(self.rank, 2 * self.size)}"
        server = f"{address}:{find_free_port(self.size + self.rank, 2 * self.size)}"
        addresses = self._communicator.allgather(own)
        server_addresses = self._communicator.allgather("" if local_rank else server)
        master_address, _, master_port = addresses[0].rpartition(":")
        return Placement(
            rank=self.rank,
            local_rank=local_rank,
            world_size=self.size,
            host=host,
            master_address=master_address,
            master_port=int(master_port),
            rank_addresses=tuple(addresses),
            server_addresses=tuple(server_addresses),
        )

    def end_after_failure(self) -> None:
        """End all ranks within a bounded time, though the healthy ones may wait for this one.

        Ranks that failed too get FAILURE_GRACE_SECONDS to write down why. If all failed there is
        nobody to end; else the launcher kills what is left (MPI_Abort).
        """
        have_all_failed = False
        try:
            have_all_failed = self._await_all_failing()
        finally:
            # also when the waiting is interrupted: Python would go on to MPI_Finalize, for ever
            if not have_all_failed:
                self._communicator.Abort(1)

    def _await_all_failing(self) -> bool:
        request = self._failure_communicator.Ibarrier()
        deadline = time.monotonic() + FAILURE_GRACE_SECONDS
        while time.monotonic() < deadline:
            if request.Test():
                return True
            time.sleep(0.05)
        return False


class Alone:
    """In a World's place for a single process without MPI, with the data of any rank."""

    def __init__(self, data_rank: int) -> None:
        self.rank = 0
        self.size = 1
        self._data_rank = data_rank

    def gather(self, value: Any) -> List[Any]:
        return [value]

    def place(self, case: Case) -> Placement:
        """The placement of `data_rank`, but in a world of one."""
        if case.world_size != 1:
            raise PlacementError(f"one process cannot be all {case.world_size} ranks")
        port = find_free_port()
        return Placement(
            rank=self._data_rank,
            local_rank=0,
            world_size=1,
            host=socket.gethostname(),
            master_address="127.0.0.1",
            master_port=port,
            rank_addresses=(f"127.0.0.1:{port}",) * (self._data_rank + 1),
        )

    def end_after_failure(self) -> None:
        """There is nobody else to end."""


def join_world() -> World:
    """Initialize MPI and become one of its ranks."""
    from mpi4py import MPI

    return World(MPI.COMM_WORLD)


def check_placement(case: Case, hosts: List[str]) -> None:
    """Compare the host names of all ranks with the topology; raises PlacementError."""
    if len(hosts) != case.world_size:
        raise PlacementError(
            f"MPI has {len(hosts)} rank(s), the topology asks for {case.world_size}. If each "
            "process is alone, its MPI does not speak with the launcher: see `srun --mpi=list` "
            'and set launcher.mpi in the site file, or launcher.name = "mpirun"'
        )
    counts = {host: hosts.count(host) for host in hosts}
    if len(counts) != case.nodes or set(counts.values()) != {case.devices_per_node}:
        found = ", ".join(f"{host}: {count}" for host, count in counts.items())
        raise PlacementError(
            f"the topology asks for {case.nodes} node(s) with {case.devices_per_node} rank(s) "
            f"each, and the launcher started {found}"
        )


def choose_address(host: str, hosts: List[str], views: List[Dict[str, str]]) -> str:
    """The address of a host as another one sees it; 127.0.0.1 when there is no other.

    A host may know its own name as 127.0.1.1. `views` has what each rank looked up, `hosts` where
    it is.
    """
    others = [view[host] for view, viewer in zip(views, hosts) if viewer != host]
    return others[0] if others else "127.0.0.1"


def look_up(host: str) -> str:
    """The IPv4 address of a host, as some frameworks take no names; the name if none is known."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def find_free_port(offset: int = 0, stride: int = 1) -> int:
    """A port that nobody listens on, below those that the kernel gives to outgoing connections.

    Processes with different offsets below the same stride never choose the same one.
    """
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            lowest_ephemeral = int(file.read().split()[0])
    except (OSError, ValueError):
        lowest_ephemeral = 32768
    highest = max(lowest_ephemeral, LOWEST_PORT + 1000)
    # jobs that share a node must not try the same ports in the same order
    ports = range(LOWEST_PORT + offset, highest, stride)
    for port in random.Random(os.urandom(16)).sample(ports, min(100, len(ports))):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError("no free port for the rendezvous among those tried")
