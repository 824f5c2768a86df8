"""A site's node checks -> the problems of this node, and the checks that could not be made."""

import dataclasses
import os
import re
import resource
import shutil
import time
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.nodes import NodeChecks
from dlperf_slurm.worker.cpu_use import Process, read_processes
from dlperf_slurm.worker.host import read_memory_kib
from dlperf_slurm.worker.nodes.commands import run_command, run_line
from dlperf_slurm.worker.nodes.devices import (
    DeviceError,
    find_clock_problem,
    find_ecc_problem,
    find_memory_problem,
    find_process_problem,
    query_gpus,
)
from dlperf_slurm.worker.nodes.links import (
    find_amd_link_problems,
    find_nvlink_problems,
    find_port_problems,
    list_link_problems,
)

PROC = Path("/proc")
SYS = Path("/sys")
SHARED_MEMORY = Path("/dev/shm")
MIB = 2**20
# the kernel's log, without and with the rights of the group systemd-journal
LOGS = (["dmesg"], ["journalctl", "-k", "-b", "-o", "short-monotonic", "--no-pager"])
# NVIDIA's catalogue of Xid errors (docs.nvidia.com/deploy/xid-errors): those of the hardware, or
# that need a reset; others, such as 13, 31, 63 and 94, are errors of a program or contained
HARDWARE_XIDS = frozenset(
    (46, 48, 54, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158)
)
# errors of NVLink, whose message says "Fatal" or "Nonfatal"
_LINK_XIDS = frozenset(range(144, 151))
_FATAL = re.compile(r"(?<!-)\bFatal\b")
# Xid whose message names the recovery action that the driver now advises, after any error
_ACTION_XID = 154
_ACTION = re.compile(r" to 0x[0-9a-f]+ \((.+)\)")
# "[ 1234.567890] NVRM: Xid (PCI:0000:18:00): 79, pid=..., GPU has fallen off the bus."
_XID = re.compile(r"^(.*)\b(S?Xid) \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+)\b(.*)", re.M)
_ENTRY = re.compile(r"^\[", re.M)
_SECONDS = re.compile(r"\[\s*(\d+\.\d+)")
# ancestor of all processes that Slurm starts on a node for a job step
_STEP_DAEMON = "slurmstepd"
MAX_NAMED = 5
# time for the processes of a job that just ended to exit
ENDING_SECONDS = 5.0
ENDING_POLL_SECONDS = 0.2


def check_node(check: NodeChecks, case: Case, seconds: float) -> Tuple[List[str], List[str]]:
    """Run a site's node checks; return problems, and descriptions of checks without a result.

    A command may take `seconds`. The site's own commands run last, all of them even if one fails.
    """
    problems: List[str] = []
    unknown: List[str] = []
    if check.links and shutil.which("amd-smi") and not shutil.which("nvidia-smi"):
        problems += find_amd_link_problems(seconds, unknown)
        check = dataclasses.replace(check, links=False)
    asked = (check.devices, check.ecc, check.clocks, check.links, check.free_device_memory_mib)
    # a node may have no GPU driver
    if any(asked) or (check.stale_processes and case.device == "cuda"):
        problems += _check_devices(check, case, seconds, unknown)
    if check.xid_hours:
        try:
            uptime = float((PROC / "uptime").read_text().split()[0])
            problems += find_xids(read_kernel_log(seconds), check.xid_hours * 3600, uptime)
        except OSError as error:
            unknown.append(f"cannot read Xid errors from the kernel log: {error}")
    if check.ports:
        problems += find_port_problems(SYS, os.environ, unknown)
    problems += list_limit_problems(check)
    if check.free_memory_mib:
        free = read_memory_kib("MemAvailable") // 1024
        if free < check.free_memory_mib:
            problems.append(f"{free} MiB of memory are free; required: {check.free_memory_mib}")
    if check.stale_processes:
        problems += find_stale_processes(os.environ.get("SLURM_JOB_ID", ""))
    found = (run_line(line, "check", seconds) for line in check.commands)
    return [*problems, *filter(None, found)], unknown


def _check_devices(
    check: NodeChecks, case: Case, seconds: float, unknown: List[str]
) -> Iterator[str]:
    """Yield the problems of the GPUs; append the checks without a result to `unknown`."""
    try:
        gpus = query_gpus(seconds, os.environ)
    except DeviceError as error:
        yield str(error)
        return
    if check.devices and len(gpus) < case.devices_per_node:
        yield f"{len(gpus)} of {case.devices_per_node} GPUs respond"
    for gpu in gpus:
        found = (
            find_ecc_problem(gpu) if check.ecc else "",
            find_clock_problem(gpu) if check.clocks else "",
            find_process_problem(gpu) if check.stale_processes else "",
            find_memory_problem(gpu, check.free_device_memory_mib),
        )
        yield from filter(None, found)
    if check.links:
        for gpu in gpus:
            yield from list_link_problems(gpu, unknown)
        yield from find_nvlink_problems(gpus, seconds, unknown)


def read_kernel_log(seconds: float) -> str:
    """Return the kernel log since boot, read within `seconds`; raises OSError if not permitted."""
    reasons = []
    for command in LOGS:
        try:
            ended = run_command(command, seconds, env={**os.environ, "LC_ALL": "C"})
        except OSError as error:
            reasons.append(f"{command[0]}: {error.strerror}")
            continue
        # journalctl also succeeds if it may read only the user's own messages
        if ended.exit_code == 0 and (command is LOGS[0] or _ENTRY.search(ended.output)):
            return ended.output
        is_late = ended.exit_code is None
        reasons.append(
            f"{command[0]} did not respond within {seconds:g} s"
            if is_late
            else ended.last_line or f"{command[0]} failed with exit code {ended.exit_code}"
        )
    raise OSError("; ".join(reasons))


def find_xids(log: str, past_seconds: float, uptime: float) -> List[str]:
    """Describe the hardware Xid errors in the last `past_seconds` of a kernel log, once per GPU.

    `uptime` is the present time on the log's clock, in seconds since boot. A line without that time
    counts, whenever it was written.
    """
    found: Dict[str, None] = {}
    actions: Dict[str, str] = {}
    for start, kind, place, number, words in _XID.findall(log):
        moment = _SECONDS.search(start)
        if moment and uptime - float(moment[1]) > past_seconds:
            continue
        xid = int(number)
        if kind == "SXid":
            if _FATAL.search(words):
                found[f"SXid {xid} of the NVSwitch at {place}"] = None
        elif xid == _ACTION_XID:
            action = _ACTION.search(words)
            actions[place] = action[1] if action else words.strip(" ,")
        elif xid in HARDWARE_XIDS or (xid in _LINK_XIDS and _FATAL.search(words)):
            found[f"Xid {xid} of the GPU at {place}"] = None
    advised = [
        f"Xid {_ACTION_XID} of the GPU at {place}: {action}"
        for place, action in actions.items()
        if action != "None"
    ]
    return [*found, *advised]


def list_limit_problems(check: NodeChecks) -> Iterator[str]:
    """Yield a sentence for each limit of this process that is below the one the site requires.

    These are open files, locked memory and /dev/shm. The job script has raised the soft limits to
    the hard ones, and srun passes them on.
    """
    for name, words, least, unit in (
        ("NOFILE", "open {} files", check.open_files, 1),
        ("MEMLOCK", "lock {} MiB of memory", check.locked_memory_mib, MIB),
    ):
        limit = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        if limit != resource.RLIM_INFINITY and limit < least * unit:
            allowed = words.format(limit // unit)
            yield (
                f"a process may {allowed}; required: {least}; raise Limit{name} of slurmd.service"
            )
    size = shutil.disk_usage(str(SHARED_MEMORY)).total // MIB if SHARED_MEMORY.is_dir() else 0
    if size < check.shared_memory_mib:
        yield f"{SHARED_MEMORY} has {size} MiB; required: {check.shared_memory_mib}"


def find_stale_processes(job_id: str) -> List[str]:
    """Describe processes left over from this user's other jobs after ENDING_SECONDS; [] if none."""
    stale = list_stale_processes(job_id)
    deadline = time.monotonic() + ENDING_SECONDS
    while stale and time.monotonic() < deadline:
        time.sleep(ENDING_POLL_SECONDS)
        still = list_stale_processes(job_id)
        stale = {pid: name for pid, name in stale.items() if pid in still}
    names = [f"{name} ({pid})" for pid, name in sorted(stale.items())[:MAX_NAMED]]
    more = f" and {len(stale) - MAX_NAMED} more" if len(stale) > MAX_NAMED else ""
    return (
        [f"processes of another job are still running: {', '.join(names)}{more}"] if stale else []
    )


def list_stale_processes(job_id: str) -> Dict[int, str]:
    """List this user's processes with another SLURM_JOB_ID and without a slurmstepd as ancestor.

    Returns names by PID. Processes of another job that still runs on the node do have such an
    ancestor.
    """
    processes = read_processes(PROC) if job_id else {}
    return {
        pid: process.name
        for pid, process in processes.items()
        if _read_job_id(pid) not in ("", job_id) and not _has_step_daemon(pid, processes)
    }


def _read_job_id(pid: int) -> str:
    """Return the SLURM_JOB_ID of a process of this user; "" if it has none or has ended."""
    try:
        if (PROC / str(pid)).stat().st_uid != os.getuid():
            return ""
        variables = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = [v.partition(b"=")[2] for v in variables if v.startswith(b"SLURM_JOB_ID=")]
    return found[0].decode(errors="replace") if found else ""


def _has_step_daemon(pid: int, processes: Mapping[int, Process]) -> bool:
    while pid in processes:
        if processes[pid].name.startswith(_STEP_DAEMON):
            return True
        pid = processes[pid].parent
    return False
