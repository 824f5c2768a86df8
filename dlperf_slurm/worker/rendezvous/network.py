"""The site's network settings -> addresses for the framework's communication."""

import fcntl
import socket
import struct
from dataclasses import replace
from typing import Any, Tuple

from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.ranks import PlacementError
from dlperf_slurm.worker.rendezvous import RendezvousSettings

# ioctl for the IPv4 address of an interface (netdevice(7))
SIOCGIFADDR = 0x8915


def choose_network(rank_info: RankInfo, world: Any, rendezvous: RendezvousSettings) -> RankInfo:
    """Return the RankInfo with addresses on the site's network; all ranks must call this.

    On a single host nothing changes. Raises PlacementError on all ranks if any host has no address
    on that network.
    """
    is_chosen = rendezvous.interface or rendezvous.host_suffix
    if not is_chosen or len(set(world.hosts)) == 1:
        return rank_info
    told = world.exchange(_find_own_address(rank_info.host, rendezvous))
    problems = sorted({problem for _, problem in told if problem})
    if problems:
        raise PlacementError("; ".join(problems))
    addresses = [address for address, _ in told]

    def move(old: Tuple[str, ...]) -> Tuple[str, ...]:
        return tuple(
            f"{address}:{text.rpartition(':')[2]}" if text else ""
            for address, text in zip(addresses, old)
        )

    return replace(
        rank_info,
        master_address=addresses[0],
        rank_addresses=move(rank_info.rank_addresses),
        server_addresses=move(rank_info.server_addresses),
    )


def add_suffix(host: str, suffix: str) -> str:
    """Return a host's name on another network: its short name plus the suffix; unchanged for ''."""
    return host.partition(".")[0] + suffix if suffix else host


def _find_own_address(host: str, rendezvous: RendezvousSettings) -> Tuple[str, str]:
    """Return this host's IPv4 address on the network and "", or "" and an error message."""
    name = add_suffix(host, rendezvous.host_suffix)
    try:
        if not rendezvous.interface:
            return socket.gethostbyname(name), ""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("256s", rendezvous.interface.encode()[:15])
            answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
        return socket.inet_ntoa(answer[20:24]), ""
    except OSError as error:
        what = f"host name {name!r} cannot be resolved"
        if rendezvous.interface:
            names = ", ".join(name for _, name in socket.if_nameindex())
            what = (
                f"interface {rendezvous.interface!r} has no IPv4 address; interfaces of this host: "
                f"{names}"
            )
        return "", f"{host}: {what} ({error.strerror}); see rendezvous in the site file"
