"""The links of a node -> their problems: PCIe, NVLink and NVSwitch of GPUs, ports of adapters."""

import json
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from dlperf_slurm.worker.host import list_folder, read_text
from dlperf_slurm.worker.nodes.devices import DeviceError, Gpu, call_driver, read_number

_PCIE = "pci/pci_gpu_link_info"
# states of a GPU that waits for the fabric manager; "N/A" without an NVSwitch
_FABRIC_WAITS = ("Not Started", "In Progress")
_NVLINKS = ("nvidia-smi", "nvlink", "--status")
# the JSON of amd-smi since ROCm 6.1, which follows warnings: a list, since ROCm 7 in an object
_AMD_FULL = ("amd-smi", "static", "--bus", "--json")
_AMD_NOW = ("amd-smi", "metric", "--usage", "--pcie", "--json")
# since ROCm 6.4; the state of each link: "U" up, "D" down, "X" disabled, or "N/A"; newer versions
# join those of the links to the same GPU: "U/D"
_AMD_XGMI = ("amd-smi", "xgmi", "--link-status", "--json")
_JSON = re.compile(r"^[\[{]", re.M)
_GPU_LINE = re.compile(r"(GPU \d+): (.*?)(?: \(UUID|$)")
_ACTIVE_LINK = re.compile(r"\s*Link \d+: [\d.]+ GB/s")
# of a RoCE port whose network interface has no address
_NO_GID = re.compile(r"[0:]*")


def list_link_problems(gpu: Gpu, unknown: List[str]) -> Iterator[str]:
    """Yield the problems of a GPU's PCIe link and NVSwitch fabric.

    Idle GPUs lower the PCIe generation to save power: only that of a busy one is a problem. A width
    that nvidia-smi does not report, as in virtual machines, is appended to `unknown`.
    """
    width, full_width = (
        read_number(gpu, f"{_PCIE}/link_widths/{name}_link_width") for name in ("current", "max")
    )
    if not (width and full_width):
        unknown.append(f"nvidia-smi does not report the PCIe link width of {gpu.name}")
    elif width < full_width:
        yield f"the PCIe link of {gpu.name} has {width} lanes; full width: {full_width}"
    generation, highest = (
        read_number(gpu, f"{_PCIE}/pcie_gen/{name}_link_gen") for name in ("current", "max")
    )
    if read_number(gpu, "utilization/gpu_util") and 0 < generation < highest:
        yield (
            f"the PCIe link of {gpu.name}, which is busy, runs at generation {generation}; "
            f"highest: {highest}"
        )
    state = gpu.values.get("fabric/state", "")
    status = gpu.values.get("fabric/status", "")
    if state in _FABRIC_WAITS or (state == "Completed" and status != "Success"):
        words = status if state == "Completed" else state
        yield (
            f"the NVSwitch fabric of {gpu.name} has state {words!r}; see `systemctl status "
            "nvidia-fabricmanager`"
        )


def find_nvlink_problems(gpus: Sequence[Gpu], seconds: float, unknown: List[str]) -> Iterator[str]:
    """Yield a sentence for each GPU with fewer active NVLinks than another GPU of its model.

    MIG instances have none. A failure of nvidia-smi is appended to `unknown`.
    """
    try:
        lines = call_driver(_NVLINKS, seconds).splitlines()
    except DeviceError as error:
        unknown.append(f"cannot read the state of NVLinks: {error}")
        return
    name = ""
    models: Dict[str, str] = {}
    active: Dict[str, int] = {}
    for line in lines:
        found = _GPU_LINE.match(line)
        if found:
            name, models[found[1]] = found[1], found[2]
            active[name] = 0
        elif name and _ACTIVE_LINK.match(line):
            active[name] += 1
    for gpu in gpus:
        most = max((active[n] for n in active if models[n] == models.get(gpu.name)), default=0)
        if active.get(gpu.name, most) < most:
            yield f"{gpu.name} has {active[gpu.name]} active NVLinks; other GPUs: {most}"


def find_amd_link_problems(seconds: float, unknown: List[str]) -> Iterator[str]:
    """Yield the AMD GPUs of the node with a slow or narrow PCIe link, or with xGMI links down.

    Some idle GPUs save power: a lower speed than its own counts only of a busy GPU, fewer lanes
    also if another GPU has all of them. What amd-smi does not report is appended to `unknown`.
    """
    try:
        full, now = (_ask_amd_smi(command, seconds) for command in (_AMD_FULL, _AMD_NOW))
    except DeviceError as error:
        unknown.append(f"cannot read the PCIe links of AMD GPUs: {error}")
        return
    widths = {
        gpu: (_read_amd(now[gpu], "pcie", "width"), _read_amd(full[gpu], "bus", "max_pcie_width"))
        for gpu in full.keys() & now.keys()
    }
    has_full = any(width == most > 0 for width, most in widths.values())
    for gpu, (width, most) in sorted(widths.items()):
        is_busy = _read_amd(now[gpu], "usage", "gfx_activity") > 0
        if not (width and most):
            unknown.append(f"amd-smi does not report the PCIe link width of GPU {gpu}")
        elif width < most and (is_busy or has_full):
            yield f"the PCIe link of GPU {gpu} has {width:g} lanes; full width: {most:g}"
        speed = _read_amd(now[gpu], "pcie", "speed")
        highest = _read_amd(full[gpu], "bus", "max_pcie_speed")
        if is_busy and 0 < speed < highest:
            yield (
                f"the PCIe link of GPU {gpu}, which is busy, runs at {speed:g} GT/s; "
                f"highest: {highest:g}"
            )
    try:
        states = _ask_amd_smi(_AMD_XGMI, seconds)
    except DeviceError as error:
        unknown.append(f"cannot read the state of xGMI links: {error}")
        return
    for gpu, told in sorted(states.items()):
        status = told.get("link_status")
        if not status or not isinstance(status, (list, str)):
            unknown.append(f"amd-smi does not report the state of the xGMI links of GPU {gpu}")
            continue
        links = [state for text in status for state in str(text).split("/")]
        if "D" in links:
            yield f"GPU {gpu} has {links.count('D')} xGMI links down, and {links.count('U')} up"


def _ask_amd_smi(command: Sequence[str], seconds: float) -> Dict[int, Any]:
    """Return the answer of amd-smi on each GPU; raises DeviceError without one."""
    text = call_driver(command, seconds)
    start = _JSON.search(text)
    try:
        told, _ = json.JSONDecoder().raw_decode(text, start.start() if start else 0)
        parts = told.values() if isinstance(told, dict) else [told]
        # a list of CPUs may be beside that of GPUs
        found = {one["gpu"]: one for part in parts for one in part if "gpu" in one}
    except (ValueError, TypeError):
        found = {}
    if not found:
        raise DeviceError("amd-smi printed no JSON with an entry for each GPU")
    return found


def _read_amd(gpu: Mapping[str, Any], group: str, name: str) -> float:
    """Return a number of amd-smi, which may be in an object with its unit; 0 for "N/A"."""
    values = gpu.get(group)
    value = values.get(name) if isinstance(values, dict) else None
    value = value.get("value") if isinstance(value, dict) else value
    return value if isinstance(value, (int, float)) else 0


class Port(NamedTuple):
    """A port of an InfiniBand or RoCE adapter, such as "mlx5_0:1"; `mtu` is "" for InfiniBand."""

    name: str
    kind: Tuple[str, str]
    state: str
    rate: str
    mtu: str
    gids: Dict[int, str]


def find_port_problems(root: Path, environ: Mapping[str, str], unknown: List[str]) -> List[str]:
    """Return the problems of InfiniBand and RoCE ports: those in NCCL_IB_HCA, or all.

    `root` is /sys. Rates and MTUs are compared between ports of the same type of adapter. That the
    node has no port is appended to `unknown`.
    """
    chosen = environ.get("NCCL_IB_HCA", "")
    folders = list_folder(root / "class/infiniband", "*/ports/*")
    ports = [port for port in map(_read_port, folders) if _is_chosen(port.name, chosen)]
    if folders and not ports:
        return [f"NCCL_IB_HCA = {chosen!r} names no port of this node"]
    if not ports:
        unknown.append("no InfiniBand or RoCE port found")
    gid_index = environ.get("NCCL_IB_GID_INDEX", "")
    found = {port.name: list(_list_port_problems(port, ports, gid_index)) for port in ports}
    problems = [problem for own in found.values() for problem in own]
    good = [name for name, own in found.items() if not own]
    if problems and good:
        problems[-1] += f'; to use the other ports: env.NCCL_IB_HCA = "={",".join(good)}"'
    return problems


def _read_port(path: Path) -> Port:
    device = path.parents[1]
    link_layer = read_text(path / "link_layer")
    interfaces = [read_text(one) for one in list_folder(path / "gid_attrs/ndevs")]
    net = path.parents[3] / "net"
    return Port(
        name=f"{device.name}:{path.name}",
        kind=(read_text(device / "hca_type"), link_layer),
        state=read_text(path / "state").rpartition(" ")[2],
        rate=read_text(path / "rate"),
        mtu=next((read_text(net / one / "mtu") for one in interfaces if one), ""),
        gids={int(one.name): read_text(one) for one in list_folder(path / "gids")},
    )


def _is_chosen(name: str, chosen: str) -> bool:
    """Return whether NCCL_IB_HCA has the port `name`: "^" excludes, "=" is for whole names."""
    if not chosen:
        return True
    is_excluded, is_exact = chosen.startswith("^"), chosen.lstrip("^").startswith("=")
    device = name.partition(":")[0]
    is_listed = any(
        (not port or name == f"{device}:{port}")
        and (device == word if is_exact else device.startswith(word))
        for word, _, port in (one.partition(":") for one in chosen.lstrip("^=").split(",") if one)
    )
    return is_listed != is_excluded


def _list_port_problems(port: Port, ports: Sequence[Port], gid_index: str) -> Iterator[str]:
    if port.state != "ACTIVE":
        yield f"port {port.name} is {port.state or 'in an unknown state'}"
        return
    alike = [one for one in ports if one.kind == port.kind and one.state == "ACTIVE"]
    best = max(alike, key=_read_rate)
    if _read_rate(port) < _read_rate(best):
        yield f"port {port.name} runs at {port.rate}, but port {best.name} at {best.rate}"
    mtus = [one.mtu for one in alike if one.mtu]
    usual = max(mtus, key=lambda mtu: (mtus.count(mtu), len(mtu), mtu), default="")
    if port.mtu and port.mtu != usual:
        yield f"port {port.name} has an MTU of {port.mtu}; other ports: {usual}"
    if port.kind[1] != "Ethernet":
        return
    known = [index for index, gid in sorted(port.gids.items()) if not _NO_GID.fullmatch(gid)]
    if not known:
        yield f"port {port.name} has no GID: its network interface has no address"
    elif gid_index.isdigit() and int(gid_index) not in known:
        yield (
            f"port {port.name} has no GID {gid_index}; set env.NCCL_IB_GID_INDEX to one of "
            f"{', '.join(map(str, known))}"
        )


def _read_rate(port: Port) -> float:
    """Return the Gbit/s of a port whose rate is "200 Gb/sec (4X HDR)"; 0 if unknown."""
    number = port.rate.partition(" ")[0]
    return float(number) if re.fullmatch(r"[\d.]+", number) else 0.0
