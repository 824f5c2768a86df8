"""python -m dlperf_slurm.worker.stall_evidence: what the ranks of a host do while they stall.

A process of its own, since a debugger stops the rank that it examines. Each program that it starts
has a time limit, and the watchdogs that wait for its file have one too.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import ContractError, build_dataclass, read_json
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import read_json as read_any_json
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.worker.host import read_stat
from dlperf_slurm.worker.telemetry.series import POWER, POWER_LIMIT, UTILIZATION
from dlperf_slurm.worker.telemetry.sources import list_visible_devices, open_devices

# for all programs together, which run at the same time
PROGRAM_SECONDS = 20
EVIDENCE_SECONDS = PROGRAM_SECONDS + 10.0
# faulthandler writes a rank's Python stacks at this signal, even if native code holds the GIL
STACKS_SIGNAL = signal.SIGRTMIN + 9
STACKS_SECONDS = 0.5
# process states of proc_pid_stat(5): running, and asleep until something happens
RUNNING = "RS"
KEPT_LINES = 40
# a device that is busy, at a low share of its power limit, runs a kernel that waits for others
BUSY_SHARE = 0.9
WAITING_POWER_SHARE = 1 / 3
# functions in which a rank waits for other ranks
_WAITS = re.compile(r"\b(P?MPI_[A-Z]\w+|nccl[A-Z]\w+|gloo::\w+|c10d::\w+|cu(?:da)?\w+Synchronize)")
_FLIGHT_RECORDER_VARIABLES = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE")


@dataclass(frozen=True)
class HostEvidence:
    """The process state (proc_pid_stat(5)) of each rank on a host, and its devices in words."""

    host: str
    states: Dict[str, str]
    devices: Tuple[str, ...]


def get_evidence_path(stalls_dir: Path, host: str) -> Path:
    """Return the file of a host's evidence; it is empty while the evidence is collected."""
    return stalls_dir / f"host-{host}.json"


def has_evidence(stalls_dir: Path, host: str) -> bool:
    """Return whether the evidence of a host is complete."""
    with suppress(OSError):
        return get_evidence_path(stalls_dir, host).stat().st_size > 0
    return False


def get_native_path(stalls_dir: Path, rank: int) -> Path:
    """Return the file for a rank's native stacks, as py-spy or gdb prints them."""
    return stalls_dir / f"rank-{rank}.native"


def start_collector(attempt_dir: Path, stalls_dir: Path, host: str) -> None:
    """Start a process that collects evidence on this host, unless another rank has started it.

    The evidence is written to `stalls_dir`; the case is read from `attempt_dir`. An OSError is
    ignored.
    """
    with suppress(OSError):
        get_evidence_path(stalls_dir, host).open("x").close()
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(attempt_dir), str(stalls_dir), host],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )


def main(arguments: Sequence[str]) -> int:
    """Write the HostEvidence of this host, after the native stacks of its ranks."""
    attempt_dir, stalls_dir, host = Path(arguments[0]), Path(arguments[1]), arguments[2]
    pids = find_ranks(stalls_dir)
    states = {}
    for rank, pid in pids.items():
        with suppress(OSError):
            state = states[rank] = read_stat(Path(f"/proc/{pid}"))[1][0]
            if state in RUNNING and not (stalls_dir / f"rank-{rank}.stacks").stat().st_size:
                os.kill(pid, STACKS_SIGNAL)
    time.sleep(STACKS_SECONDS)
    with ThreadPoolExecutor(len(pids) + 1) as pool:
        pool.submit(_save_output, stalls_dir / f"host-{host}.ncclras", [["ncclras"]])
        for rank, state in states.items():
            # gdb would let a stopped process go on
            if state in RUNNING:
                name = str(pids[rank])
                tracers = [
                    ["py-spy", "dump", "--native", "--pid", name],
                    ["gdb", "-nx", "-batch", "-p", name, "-ex", "bt", "-ex", "thread apply all bt"],
                ]
                pool.submit(_save_output, get_native_path(stalls_dir, rank), tracers)
        devices = tuple(describe_devices(read_json(attempt_dir / CASE_FILE, Case)))
    evidence = json.dumps(
        asdict(HostEvidence(host, {str(rank): state for rank, state in states.items()}, devices))
    )
    write_file(get_evidence_path(stalls_dir, host), evidence.encode())
    return 0


def find_ranks(stalls_dir: Path) -> Dict[int, int]:
    """Find the process of each rank on this host, as the one that has its stacks file open."""
    files = {}
    for path in stalls_dir.glob("rank-*.stacks"):
        status = path.stat()
        files[status.st_dev, status.st_ino] = int(path.stem[len("rank-") :])
    found: Dict[int, int] = {}
    for pid in sorted(int(path.name) for path in Path("/proc").glob("[0-9]*")):
        # of another user, or ended
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                opened = entry.stat()
                rank = files.get((opened.st_dev, opened.st_ino))
                if rank is not None:
                    # children that a rank has forked have it open too, and mostly higher ids
                    found.setdefault(rank, pid)
    return found


def describe_devices(case: Case) -> Iterator[str]:
    """Describe the use and power of each device that this process sees."""
    if case.device != "cuda":
        return
    for source in open_devices(dict(enumerate(list_visible_devices(case, os.environ)))):
        now = source.read()
        share, watts, limit_watts = now[UTILIZATION], now[POWER], now[POWER_LIMIT]
        # NaN is never less
        is_waiting = share >= BUSY_SHARE and watts <= WAITING_POWER_SHARE * limit_watts
        yield f"GPU {source.device}: {share:.0%} use at {watts:.0f} of {limit_watts:.0f} W" + (
            ", as when it waits in a collective" if is_waiting else ""
        )


def _save_output(path: Path, commands: Sequence[List[str]]) -> None:
    """Write the output of the first of these commands that succeeds."""
    # gdb would ask a server for debugging symbols
    env = {name: value for name, value in os.environ.items() if name != "DEBUGINFOD_URLS"}
    present = [command for command in commands if shutil.which(command[0])]
    for command in present:
        with suppress(OSError, subprocess.SubprocessError):
            output = subprocess.run(
                command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=PROGRAM_SECONDS / len(present),
                check=True,
            ).stdout
            write_file(path, output)
            return


def dump_flight_recorder(path: Path) -> None:
    """Write the rank's last collectives, if PyTorch's flight recorder is on in its environment.

    `torchfrtrace` reads the files of all ranks.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(os.environ.get(name) for name in _FLIGHT_RECORDER_VARIABLES):
        return
    recorder = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    for name in ("_dump_nccl_trace", "_dump_fr_trace"):
        dump = getattr(recorder, name, None)
        if dump is not None:
            # an interface without promises, of a library that hangs
            with suppress(RuntimeError, TypeError, OSError):
                write_file(path, dump())
            return


def read_evidence(stalls_dir: Path) -> List[HostEvidence]:
    """Read the evidence of all hosts whose evidence is complete."""
    found = []
    for path in sorted(stalls_dir.glob("host-*.json")):
        with suppress(FileProblem, ContractError, FileNotFoundError):
            values = read_any_json(path)
            found.append(build_dataclass(HostEvidence, values, str(path), is_complete=True))
    return found


def read_native_stack(stalls_dir: Path, rank: int) -> str:
    """Return the first KEPT_LINES of a rank's native stack; "" if there is none.

    Of gdb's output, only the main thread, which comes first.
    """
    try:
        text = get_native_path(stalls_dir, rank).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    _, begin, frames = text.partition("#0 ")
    text = f"{begin}{frames}".partition("\nThread ")[0] if begin else text
    return "\n".join(text.splitlines()[:KEPT_LINES])


def find_wait(native_stack: str) -> str:
    """Return the innermost function of a stack that waits for other ranks, or ""."""
    found = _WAITS.search(native_stack)
    return found.group(1) if found else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
