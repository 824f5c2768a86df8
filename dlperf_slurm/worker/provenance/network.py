"""This host -> what its ranks may talk over: network interfaces and InfiniBand ports."""

from pathlib import Path
from typing import Dict

from dlperf_slurm.worker.provenance.files import ROOT, drop_empty, list_folder, read_text


def describe_network(root: Path = ROOT) -> Dict[str, str]:
    """Interfaces that are up and have a device below them, and bonds of such."""
    interfaces = filter(None, map(_describe_interface, list_folder(root / "sys/class/net")))
    ports = list_folder(root / "sys/class/infiniband", "*/ports/*")
    return drop_empty(
        {
            "network": "; ".join(interfaces),
            "infiniband": "; ".join(map(_describe_port, ports)),
        }
    )


def _describe_interface(path: Path) -> str:
    has_hardware = (path / "device").exists() or (path / "bonding").exists()
    if not has_hardware or read_text(path / "operstate") == "down":
        return ""
    driver = path / "device/driver"
    speed = read_text(path / "speed")
    words = [
        path.name,
        driver.resolve().name if driver.exists() else "",
        # -1 where the driver does not know
        f"{speed} Mbit/s" if speed.isdigit() else "",
        f"mtu {read_text(path / 'mtu')}",
    ]
    return " ".join(filter(None, words))


def _describe_port(path: Path) -> str:
    """As "mlx5_0/1 ACTIVE 200 Gb/sec (4X HDR) InfiniBand firmware 20.31.1014"."""
    device = path.parents[1]
    firmware = read_text(device / "fw_ver")
    words = [
        f"{device.name}/{path.name}",
        # "4: ACTIVE"
        read_text(path / "state").rpartition(" ")[2],
        read_text(path / "rate"),
        read_text(path / "link_layer"),
        f"firmware {firmware}" if firmware else "",
    ]
    return " ".join(filter(None, words))
