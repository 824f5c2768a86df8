"""python -m dlperf_slurm.worker.stall_evidence: what the ranks of a host do while they stall.

A process of its own, since a debugger stops the rank that it examines. Each program that it starts
has a time limit, and the watchdogs that wait for its file have one too.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, read_sidecar, write_sidecar
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.worker.host import read_stat, read_text
from dlperf_slurm.worker.telemetry.gpu_sources import list_visible_devices, open_devices
from dlperf_slurm.worker.telemetry.series import POWER, POWER_LIMIT, UTILIZATION

STALLS_DIR = "stalls"
# Suffixes of a rank's files here: its Python stacks, empty as long as nothing is wrong; the
# RankStatus of one that its watchdog ended; its native stacks, as py-spy or gdb prints them; and a
# mark of a silent rank, which wrote no RankStatus before others ended. The timer of a silent rank
# may still write its stacks: a launcher that ends its ranks also sends SIGCONT to stopped ones.
STACKS, STATUS, NATIVE, SILENT = "stacks", "json", "native", "silent"
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


T = TypeVar("T")


@dataclass(frozen=True)
class HostEvidence:
    """The process state (proc_pid_stat(5)) of each rank on a host, and its devices in words."""

    host: str
    states: Dict[str, str]
    devices: Tuple[str, ...]


def get_rank_path(attempt_dir: Path, rank: int, kind: str) -> Path:
    """Return the file of a rank that has stalled; `kind` is STACKS, STATUS, NATIVE or SILENT."""
    return attempt_dir / STALLS_DIR / f"rank-{rank}.{kind}"


def get_evidence_path(attempt_dir: Path, host: str) -> Path:
    """Return the file of a host's evidence; it is empty while the evidence is collected."""
    return attempt_dir / STALLS_DIR / f"host-{host}.json"


def is_filled(path: Path) -> bool:
    """Return whether a file exists and is not empty."""
    with suppress(OSError):
        return path.stat().st_size > 0
    return False


def start_collector(attempt_dir: Path, host: str) -> None:
    """Start a process that collects evidence of a stall on this host, unless a rank has done so.

    An OSError is ignored.
    """
    with suppress(OSError):
        get_evidence_path(attempt_dir, host).open("x").close()
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(attempt_dir), host],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )


def main(arguments: Sequence[str]) -> int:
    """Write native stacks of this host's ranks, then HostEvidence; arguments: ATTEMPT_DIR HOST."""
    attempt_dir, host = Path(arguments[0]), arguments[1]
    evidence_path = get_evidence_path(attempt_dir, host)
    pids = find_ranks(attempt_dir)
    states = {}
    for rank, pid in pids.items():
        with suppress(OSError):
            state = states[rank] = read_stat(Path(f"/proc/{pid}"))[1][0]
            if state in RUNNING and not is_filled(get_rank_path(attempt_dir, rank, STACKS)):
                os.kill(pid, STACKS_SIGNAL)
    time.sleep(STACKS_SECONDS)
    with ThreadPoolExecutor(len(pids) + 1) as pool:
        pool.submit(_save_output, evidence_path.with_suffix(".ncclras"), [["ncclras"]])
        for rank, state in states.items():
            # gdb would let a stopped process go on
            if state in RUNNING:
                name = str(pids[rank])
                tracers = [
                    ["py-spy", "dump", "--native", "--pid", name],
                    ["gdb", "-nx", "-batch", "-p", name, "-ex", "bt", "-ex", "thread apply all bt"],
                ]
                pool.submit(_save_output, get_rank_path(attempt_dir, rank, NATIVE), tracers)
        devices = tuple(describe_devices(read_json(attempt_dir / CASE_FILE, Case)))
    for rank, state in states.items():
        # a debugger that was killed leaves its process stopped
        if state in RUNNING:
            with suppress(OSError):
                os.kill(pids[rank], signal.SIGCONT)
    named_states = {str(rank): state for rank, state in states.items()}
    write_sidecar(evidence_path, HostEvidence(host, named_states, devices))
    return 0


def find_ranks(attempt_dir: Path) -> Dict[int, int]:
    """Find the ranks on this host: rank -> PID of the process that has its stacks file open."""
    files = {}
    for path in (attempt_dir / STALLS_DIR).glob(f"rank-*.{STACKS}"):
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
    """Yield a text on the use and power of each GPU that this process sees."""
    if case.device != "cuda":
        return
    for source in open_devices(dict(enumerate(list_visible_devices(case, os.environ)))):
        now = source.read()
        share, watts, limit_watts = now[UTILIZATION], now[POWER], now[POWER_LIMIT]
        # NaN is never less
        is_waiting = share >= BUSY_SHARE and watts <= WAITING_POWER_SHARE * limit_watts
        yield f"GPU {source.device}: {share:.0%} use at {watts:.0f} of {limit_watts:.0f} W" + (
            ", as when a GPU waits in a collective" if is_waiting else ""
        )


def _save_output(path: Path, commands: Sequence[List[str]]) -> None:
    """Write to `path` the output of the first of these commands that succeeds, if any does."""
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
    """Write the rank's last collectives to `path`, if PyTorch's flight recorder is switched on.

    `torchfrtrace` reads the files of all ranks.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(os.environ.get(name) for name in _FLIGHT_RECORDER_VARIABLES):
        return
    recorder = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    traces: List[bytes] = []
    for name in ("_dump_nccl_trace", "_dump_fr_trace"):
        # a private interface, which may be missing or fail, of a library that hangs
        with suppress(AttributeError, RuntimeError, TypeError):
            traces.append(getattr(recorder, name)())
    if traces:
        # builds for CUDA record collectives of NCCL in the first, those of Gloo in the second
        with suppress(OSError):
            write_file(path, max(traces, key=len))


def read_valid(path: Path, kind: Type[T]) -> Optional[T]:
    """Read a dataclass of type `kind` that was written as JSON; None if there is no valid file."""
    with suppress(FileProblem, FileNotFoundError):
        return read_sidecar(path, kind)
    return None


def read_evidence(attempt_dir: Path) -> List[HostEvidence]:
    """Read the evidence of all hosts whose evidence is complete."""
    paths = sorted((attempt_dir / STALLS_DIR).glob("host-*.json"))
    found = (read_valid(path, HostEvidence) for path in paths)
    return [evidence for evidence in found if evidence is not None]


def read_native_stack(attempt_dir: Path, rank: int) -> str:
    """Return the first KEPT_LINES of a rank's native stack; "" if there is none.

    Of gdb's output, only the main thread, which comes first.
    """
    text = read_text(get_rank_path(attempt_dir, rank, NATIVE))
    _, begin, frames = text.partition("#0 ")
    text = f"{begin}{frames}".partition("\nThread ")[0] if begin else text
    return "\n".join(text.splitlines()[:KEPT_LINES])


def find_wait(native_stack: str) -> str:
    """Return a stack's innermost function that waits for other ranks ("MPI_Barrier"), or ""."""
    found = _WAITS.search(native_stack)
    return found.group(1) if found else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
