"""MPI ranks: their placement on hosts, the framework's rendezvous, gathering, and joint failure."""

import os
import random
import socket
import time
from typing import Any, Dict, List, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo

FAILURE_GRACE_SECONDS = 5.0
LOWEST_PORT = 20000


class PlacementError(RuntimeError):
    """The launcher did not start the ranks as the topology requires."""


class World:
    """The MPI ranks of one array task."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator
        # a communicator of its own for failing ranks: the others may be in any collective of the
        # first one
        self._failure_communicator = communicator.Dup()
        self.rank = communicator.Get_rank()
        self.size = communicator.Get_size()
        # host names by rank, set by `place`
        self.hosts: Tuple[str, ...] = ()

    def barrier(self) -> None:
        self._communicator.Barrier()

    def gather(self, value: Any) -> List[Any]:
        """Return the values of all ranks, in rank order, on rank 0, and [] on the others."""
        return self._communicator.gather(value, root=0) or []

    def exchange(self, value: Any) -> List[Any]:
        """Return the values of all ranks, in rank order, on every rank."""
        return list(self._communicator.allgather(value))

    def place(self, case: Case) -> RankInfo:
        """Check the ranks' placement; return this rank's position and the rendezvous addresses.

        All ranks must call this. Raises PlacementError on all of them if the launcher did not place
        the ranks as the topology requires.
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
        return RankInfo(
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
        """End all ranks within a bounded time, although healthy ranks may be waiting for this one.

        Other failed ranks get FAILURE_GRACE_SECONDS to write their reason. If all ranks failed,
        nothing is left to end; otherwise MPI_Abort makes the launcher kill the rest.
        """
        have_all_failed = False
        try:
            have_all_failed = self._await_all_failing()
        finally:
            # also if the wait is interrupted: Python would go on to MPI_Finalize and block there
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


class SingleProcess:
    """Replaces a World for a single process without MPI; it gets the data of rank `data_rank`."""

    def __init__(self, data_rank: int) -> None:
        self.rank = 0
        self.size = 1
        self._data_rank = data_rank

    def gather(self, value: Any) -> List[Any]:
        return [value]

    def place(self, case: Case) -> RankInfo:
        """Return the RankInfo of rank `data_rank`, with a world size of 1.

        Raises PlacementError if the topology needs more ranks.
        """
        if case.world_size != 1:
            raise PlacementError(
                f"this is a single process, but the topology needs {case.world_size} ranks; start "
                "them with mpirun or srun"
            )
        port = find_free_port()
        return RankInfo(
            rank=self._data_rank,
            local_rank=0,
            world_size=1,
            host=socket.gethostname(),
            master_address="127.0.0.1",
            master_port=port,
            rank_addresses=(f"127.0.0.1:{port}",) * (self._data_rank + 1),
        )

    def end_after_failure(self) -> None:
        """Do nothing: there are no other ranks to end."""


def check_placement(case: Case, hosts: List[str]) -> None:
    """Compare the host names of all ranks with the topology.

    Raises PlacementError if the ranks, nodes or ranks per node differ.
    """
    if len(hosts) != case.world_size:
        raise PlacementError(
            f"MPI has {len(hosts)} rank(s), but the topology needs {case.world_size}. If each "
            "process has an MPI_COMM_WORLD of size 1, the launcher does not support this MPI: see "
            "`srun --mpi=list` and set launcher.mpi in the site file, or set launcher.name = "
            '"mpirun"'
        )
    counts = {host: hosts.count(host) for host in hosts}
    if len(counts) != case.nodes or set(counts.values()) != {case.devices_per_node}:
        found = ", ".join(f"{host}: {count}" for host, count in counts.items())
        raise PlacementError(
            f"the topology needs {case.nodes} node(s) with {case.devices_per_node} rank(s) each, "
            f"but the launcher started {found}"
        )


def choose_address(host: str, hosts: List[str], views: List[Dict[str, str]]) -> str:
    """Return the address of `host` as another host resolves it, or 127.0.0.1 if there is no other.

    A host may resolve its own name to 127.0.1.1. `views` has the addresses that each rank resolved,
    by host name; `hosts` has each rank's host.
    """
    others = [view[host] for view, viewer in zip(views, hosts) if viewer != host]
    return others[0] if others else "127.0.0.1"


def look_up(host: str) -> str:
    """Resolve a host name to IPv4, which some frameworks need; the name itself if that fails."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host


def find_free_port(offset: int = 0, stride: int = 1) -> int:
    """Return a TCP port that nobody listens on, below the kernel's ephemeral ports.

    Processes with different offsets and the same stride, such as rank and number of ranks, never
    choose the same port. Raises OSError if there is none among those tried.
    """
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            lowest_ephemeral = int(file.read().split()[0])
    except (OSError, ValueError):
        lowest_ephemeral = 32768
    highest = max(lowest_ephemeral, LOWEST_PORT + 1000)
    # in random order, so that jobs that share a node do not try the same ports
    ports = range(LOWEST_PORT + offset, highest, stride)
    for port in random.Random(os.urandom(16)).sample(ports, min(100, len(ports))):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port for the rendezvous between {LOWEST_PORT} and {highest}")
