"""A rank's place and a secret -> its connections: rank 0's to all others, theirs to rank 0."""

import random
import socket
import time
from contextlib import suppress
from typing import Dict, List, NamedTuple, Tuple

from dlperf_slurm.worker.joining.channel import Channel
from dlperf_slurm.worker.ranks import LOWEST_PORT, PlacementError

# below those that the kernel gives to outgoing connections (ip_local_port_range)
PORTS = range(LOWEST_PORT, 32768)
PORTS_TRIED = 16
# ranks may start minutes apart, where each node fetches an image first
START_SECONDS = 600.0
CONNECT_SECONDS = 5.0
PAUSE_SECONDS = 0.1
# the host of rank 0 where all ranks are on one
LOOPBACK = "127.0.0.1"


class Place(NamedTuple):
    """What a launcher tells a rank: which it is, of how many, and the host of rank 0.

    `launch` is the same for the ranks of one launch, and another for those of others.
    """

    rank: int
    size: int
    first_host: str
    launch: str


class Met(NamedTuple):
    """Connections by rank, and the host of each rank."""

    channels: Dict[int, Channel]
    hosts: List[str]


def choose_ports(launch: str) -> List[int]:
    """The ports at which rank 0 of a launch may listen: the first that it finds free."""
    # random.Random of a text is the same in every process
    return random.Random(launch).sample(PORTS, PORTS_TRIED)


def meet(place: Place, secret: bytes, seconds: float = START_SECONDS) -> Met:
    """The connections of this rank; raises PlacementError when not all come within the time."""
    deadline = time.monotonic() + seconds
    own_host = socket.gethostname()
    if place.rank == 0:
        return _await_others(place, secret, own_host, deadline)
    channel = _reach_first(place, secret, own_host, deadline)
    # rank 0 answers when all are there
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
                # anybody may connect; a rank that was cut off comes again
                connection.close()
                continue
            channels[rank], hosts[rank] = channel, host
    for channel in channels.values():
        channel.open()
        # of one that is gone already its end tells
        with suppress(OSError):
            channel.send([hosts[rank] for rank in range(place.size)])
    return Met(channels, [hosts[rank] for rank in range(place.size)])


def _admit(connection: socket.socket, secret: bytes) -> Tuple[Channel, int, str]:
    channel = Channel(connection, secret, is_first=True)
    rank, host = channel.receive()
    channel.send("admitted")
    return channel, rank, host


def _listen(ports: List[int]) -> socket.socket:
    for port in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # a port that a launch before has left may still be waiting
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("", port))
            listener.listen(socket.SOMAXCONN)
        except OSError:
            listener.close()
            continue
        return listener
    raise PlacementError(f"rank 0 finds none of its ports free: {', '.join(map(str, ports))}")


def _reach_first(place: Place, secret: bytes, own_host: str, deadline: float) -> Channel:
    """The connection to rank 0, whichever port it has found free; others may listen at the rest."""
    problem = "nobody listens"
    while time.monotonic() < deadline:
        for port in choose_ports(place.launch):
            try:
                connection = socket.create_connection((place.first_host, port), CONNECT_SECONDS)
            except socket.gaierror as error:
                if error.errno != socket.EAI_AGAIN:
                    raise PlacementError(
                        f"rank {place.rank} on {own_host} does not know the host of rank 0, "
                        f"{place.first_host!r}: {error.strerror}; see rendezvous.host_suffix in "
                        "the site file"
                    ) from error
                problem = str(error)
            except OSError as error:
                problem = str(error)
            else:
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
