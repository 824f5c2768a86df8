"""A rank's place and a secret -> connections between rank 0 and all other ranks."""

import random
import socket
import time
from contextlib import suppress
from typing import Dict, List, NamedTuple, Tuple

from dlperf_slurm.worker.ranks import LOWEST_PORT, PlacementError
from dlperf_slurm.worker.rendezvous.rank_environment import Place
from dlperf_slurm.worker.rendezvous.transport import Channel

# below the kernel's ephemeral ports (ip_local_port_range)
PORTS = range(LOWEST_PORT, 32768)
PORTS_TRIED = 16
# ranks may start minutes apart if each node pulls an image first
START_SECONDS = 600.0
CONNECT_SECONDS = 5.0
PAUSE_SECONDS = 0.1


class Met(NamedTuple):
    """Open connections by rank, and the host of each rank."""

    channels: Dict[int, Channel]
    hosts: List[str]


def choose_ports(launch: str) -> List[int]:
    """Return candidate ports, the same in every process of a launch; rank 0 uses the first free."""
    return random.Random(launch).sample(PORTS, PORTS_TRIED)


def meet(place: Place, secret: bytes, seconds: float = START_SECONDS) -> Met:
    """Connect this rank; raises PlacementError if not all ranks connect within `seconds`."""
    deadline = time.monotonic() + seconds
    own_host = socket.gethostname()
    if place.rank == 0:
        return _await_others(place, secret, own_host, deadline)
    channel = _reach_first(place, secret, own_host, deadline)
    # rank 0 answers when all ranks are connected
    channel.open()
    hosts: List[str] = channel.receive()
    return Met({0: channel}, hosts)


def _await_others(place: Place, secret: bytes, own_host: str, deadline: float) -> Met:
    channels: Dict[int, Channel] = {}
    hosts = {0: own_host}
    with _listen(choose_ports(place.launch)) as listener:
        while len(hosts) < place.size:
            try:
                listener.settimeout(max(deadline - time.monotonic(), 0.001))
                connection, _ = listener.accept()
            except socket.timeout as error:
                missing = [str(rank) for rank in range(place.size) if rank not in hosts]
                raise PlacementError(
                    f"rank(s) {', '.join(missing)} of {place.size} did not come to rank 0 on "
                    f"{own_host}: did they start, and is there a firewall between the nodes?"
                ) from error
            try:
                channel, rank, host = _admit(connection, secret)
            except OSError:
                # an unauthenticated peer, or a rank that lost its connection and will retry
                connection.close()
                continue
            channels[rank], hosts[rank] = channel, host
    by_rank = [hosts[rank] for rank in range(place.size)]
    for channel in channels.values():
        channel.open()
        # the closed connection of a rank that is gone already is reported later
        with suppress(OSError):
            channel.send(by_rank)
    return Met(channels, by_rank)


def _admit(connection: socket.socket, secret: bytes) -> Tuple[Channel, int, str]:
    channel = Channel(connection, secret, is_first=True)
    rank, host = channel.receive()
    channel.send("admitted")
    return channel, rank, host


def _listen(ports: List[int]) -> socket.socket:
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # a port of an earlier launch may still be in TIME_WAIT
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen(socket.SOMAXCONN)
            return listener
        except OSError:
            listener.close()
    raise PlacementError(f"rank 0 finds none of its ports free: {', '.join(map(str, ports))}")


def _reach_first(place: Place, secret: bytes, own_host: str, deadline: float) -> Channel:
    """Connect to rank 0 by trying all its ports; other programs may listen on some of them."""
    problem = "nobody listens"
    while time.monotonic() < deadline:
        for port in choose_ports(place.launch):
            try:
                connection = socket.create_connection((place.first_host, port), CONNECT_SECONDS)
            except OSError as error:
                is_unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
                if is_unknown:
                    raise PlacementError(
                        f"rank {place.rank} on {own_host} does not know the host of rank 0, "
                        f"{place.first_host!r}: {error.strerror}; see rendezvous.host_suffix in "
                        "the site file"
                    ) from error
                problem = str(error)
                continue
            try:
                channel = Channel(connection, secret, is_first=False)
                channel.send((place.rank, own_host))
                channel.receive()
                return channel
            except OSError as error:
                problem = f"port {port}: {error}"
                connection.close()
        time.sleep(PAUSE_SECONDS)
    raise PlacementError(
        f"rank {place.rank} on {own_host} does not reach rank 0 on {place.first_host}: {problem}"
    )
