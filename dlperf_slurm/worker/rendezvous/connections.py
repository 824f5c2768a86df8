"""A rank's environment and a secret -> connections between rank 0 and all other ranks.

Rank 0 listens at the address that the others know it by, on a port that follows from the secret.
Each connection is admitted in a thread of its own with one deadline, so that a peer without the
secret holds up nobody, however many connections it opens and however slowly it sends.
"""

import errno
import hmac
import queue
import random
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Deque, Dict, List, NamedTuple, Tuple

from dlperf_slurm.worker.ranks import LOWEST_PORT, PlacementError
from dlperf_slurm.worker.rendezvous.rank_environment import LOOPBACK, RankEnvironment
from dlperf_slurm.worker.rendezvous.transport import Channel

# below the kernel's ephemeral ports (ip_local_port_range)
PORTS = range(LOWEST_PORT, 32768)
PORTS_TRIED = 16
# ranks may start minutes apart if each node pulls an image first
START_SECONDS = 600.0
CONNECT_SECONDS = 5.0
PAUSE_SECONDS = 0.1
# connections that are not admitted yet, beside one per rank; beyond that the oldest is closed
MAX_PENDING = 200


class Connections(NamedTuple):
    """Open connections by rank, and the host of each rank."""

    channels: Dict[int, Channel]
    hosts: List[str]


# an admitted connection, its rank and the rank's host
Arrival = Tuple[Channel, int, str]


def choose_ports(launch: str, secret: bytes) -> List[int]:
    """Return candidate ports, the same in every process of a launch; rank 0 uses the first free.

    They follow from the secret and `launch`, a text that is unique to the launch: other users know
    the launch's job id, and could take the ports.
    """
    seed = hmac.new(secret, launch.encode(), "sha256").hexdigest()
    return random.Random(seed).sample(PORTS, PORTS_TRIED)


def connect_ranks(
    place: RankEnvironment, secret: bytes, seconds: float = START_SECONDS
) -> Connections:
    """Connect rank 0 with all other ranks; return this rank's connections, and all hosts by rank.

    All ranks of the launch know `secret`. Raises PlacementError after `seconds`.
    """
    deadline = time.monotonic() + seconds
    own_host = socket.gethostname()
    if place.size == 1:
        return Connections({}, [own_host])
    if place.rank == 0:
        return _await_others(place, secret, own_host, deadline)
    channel = _reach_first(place, secret, own_host, deadline)
    # rank 0 answers when all ranks are connected
    channel.open()
    hosts: List[str] = channel.receive()
    return Connections({0: channel}, hosts)


def _await_others(
    place: RankEnvironment, secret: bytes, own_host: str, deadline: float
) -> Connections:
    channels: Dict[int, Channel] = {}
    hosts = {0: own_host}
    arrivals: "queue.Queue[Arrival]" = queue.Queue()
    listener = _listen(place.first_host, choose_ports(place.launch, secret))
    arguments = (listener, secret, arrivals, MAX_PENDING + place.size)
    threading.Thread(target=_accept, args=arguments, name="accept", daemon=True).start()
    try:
        while len(hosts) < place.size:
            channel, rank, host = arrivals.get(timeout=max(deadline - time.monotonic(), 0.001))
            channels[rank], hosts[rank] = channel, host
    except queue.Empty:
        missing = [str(rank) for rank in range(place.size) if rank not in hosts]
        raise PlacementError(
            f"rank(s) {', '.join(missing)} of {place.size} did not connect to rank 0 on "
            f"{own_host}; check in the file `err` that these ranks started, and that no firewall "
            "blocks TCP between the nodes"
        ) from None
    finally:
        # wakes the thread in accept(2), which close(2) would not
        listener.shutdown(socket.SHUT_RDWR)
    by_rank = [hosts[rank] for rank in range(place.size)]
    for channel in channels.values():
        channel.open()
        # the closed connection of a rank that is gone already is reported later
        with suppress(OSError):
            channel.send(by_rank)
    return Connections(channels, by_rank)


def _accept(
    listener: socket.socket, secret: bytes, arrivals: "queue.Queue[Arrival]", most: int
) -> None:
    """Admit connections, with at most `most` pending, until the listener is shut down."""
    pending: Deque[socket.socket] = deque()
    with listener:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno == errno.EINVAL:
                    break
                # too many open files, or a connection that its peer has closed already
                time.sleep(PAUSE_SECONDS)
                continue
            pending.append(connection)
            if len(pending) > most:
                # its thread then gets the end of the stream
                with suppress(OSError, IndexError):
                    pending.popleft().shutdown(socket.SHUT_RDWR)
            threading.Thread(
                target=_admit, args=(connection, secret, arrivals, pending), daemon=True
            ).start()


def _admit(
    connection: socket.socket,
    secret: bytes,
    arrivals: "queue.Queue[Arrival]",
    pending: Deque[socket.socket],
) -> None:
    """Authenticate one peer by the secret, and put the connection into the queue of arrivals."""
    try:
        channel = Channel(connection, secret, is_first=True)
        rank, host = channel.receive()
        # raises ValueError for a connection that was shut down meanwhile
        pending.remove(connection)
        channel.send("admitted")
        arrivals.put((channel, rank, host))
    except (OSError, ValueError):
        # an unauthenticated peer, or a rank that lost its connection and will retry
        with suppress(ValueError):
            pending.remove(connection)
        connection.close()


def _listen(host: str, ports: List[int]) -> socket.socket:
    """Listen on the first free port, at the address of `host` alone where this host has it."""
    family, own = _find_address(host)
    for address in dict.fromkeys((own, "")):
        for port in ports:
            listener = socket.socket(family, socket.SOCK_STREAM)
            # a port of an earlier launch may still be in TIME_WAIT
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
                listener.listen(socket.SOMAXCONN)
                return listener
            except OSError:
                listener.close()
    raise PlacementError(f"rank 0 found no free port among {', '.join(map(str, ports))}")


def _find_address(host: str) -> Tuple[int, str]:
    """Return the address family of `host` (AF_INET for IPv4, if it has one) and its address.

    The address is '' (all addresses) if only this host knows `host` by it, as by 127.0.1.1.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return socket.AF_INET, ""
    family, address = min((int(info[0]), str(info[4][0])) for info in found)
    # /etc/hosts of Debian gives a host's own name the address 127.0.1.1
    is_own = address.startswith("127.") and host != LOOPBACK
    return family, "" if is_own else address


def _reach_first(place: RankEnvironment, secret: bytes, own_host: str, deadline: float) -> Channel:
    """Connect to rank 0 by trying all its candidate ports, of which others may use some."""
    problem = "connection refused"
    while time.monotonic() < deadline:
        for port in choose_ports(place.launch, secret):
            try:
                connection = socket.create_connection((place.first_host, port), CONNECT_SECONDS)
            except OSError as error:
                is_unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
                if is_unknown:
                    raise PlacementError(
                        f"rank {place.rank} on {own_host} cannot resolve the host name of rank 0, "
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
        f"rank {place.rank} on {own_host} cannot connect to rank 0 on {place.first_host}: {problem}"
    )
