"""A case about to start -> the peak of its devices, measured once per job, node and number format.

An error is reported in the peaks file beside the record, and never fails the repeat.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Mapping, Optional, Tuple

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import build_dataclass, read_sidecar, write_sidecar
from dlperf_slurm.contract.peaks import NUMBER_FORMATS, AllReduce, DevicePeak, Peaks
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.folders import open_folder
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.peaks import list_measured_frameworks
from dlperf_slurm.worker.peaks.all_reduce import time_all_reduces

# "0" switches the measurement off; a site's [env] may set it
SWITCH = "DLPERF_SLURM_PEAKS"
JOB_VARIABLES = ("SLURM_JOB_ID", "DLPERF_SLURM_JOB_ID")
SHARED_DIR = "peaks"

# importing a framework from a slow disk may take long; measuring itself takes some three seconds
LIMIT_SECONDS = 90.0


def is_measured(case: Case, environ: Mapping[str, str]) -> bool:
    """Return whether the case's device peaks are measured: for trainings with telemetry only.

    The variable SWITCH of `environ` may switch the measurement off.
    """
    is_watched = case.telemetry_interval_seconds > 0 and environ.get(SWITCH, "1") != "0"
    return is_watched and case.axes.mode == TRAIN


def measure_peak(
    case: Case, rank_info: RankInfo, world: Any, attempt_dir: Path
) -> Optional[DevicePeak]:
    """Measure the peak rates of this host's device on its first rank, before any framework import.

    All ranks must call this; the others wait without using a CPU, and get None. All get None for a
    case without this measurement (`is_measured`).
    """
    if not is_measured(case, os.environ):
        return None
    peak = _find_peak(case, rank_info, attempt_dir) if rank_info.local_rank == 0 else None
    world.await_all()
    return peak


def _find_peak(case: Case, rank_info: RankInfo, attempt_dir: Path) -> DevicePeak:
    """Return the device peak that an earlier repeat of this job cached for this host.

    If there is none, measure and cache it.
    """
    place = find_shared_file(case, rank_info.host, attempt_dir, os.environ)
    if place is not None:
        try:
            return read_sidecar(place[1], DevicePeak, root=place[0])
        except (FileNotFoundError, FileProblem):
            pass
    peak = run_measurement(case, rank_info.host)
    if place is not None and not peak.problem:
        try:
            with open_folder(place[1].parent, place[0], is_made=True):
                write_sidecar(place[1], peak, root=place[0])
        except (OSError, FileProblem) as error:
            print(f"cannot cache the peak of {rank_info.host}: {error}", file=sys.stderr)
    return peak


def find_shared_file(
    case: Case, host: str, attempt_dir: Path, environ: Mapping[str, str]
) -> Optional[Tuple[Path, Path]]:
    """Return the run directory, and the file in it that caches the device peak of a host.

    The repeats of a job with the same framework and number format share the file. None outside of a
    job or a run directory.
    """
    job_id = next((environ[name] for name in JOB_VARIABLES if environ.get(name)), "")
    cases = next((path for path in attempt_dir.absolute().parents if path.name == "cases"), None)
    if not job_id or cases is None:
        return None
    numbers = NUMBER_FORMATS[case.axes.precision]
    name = f"{job_id}.{host}.{case.axes.framework}.{case.device}.{numbers}.json".replace("/", "_")
    return cases.parent, cases.parent / SHARED_DIR / name


def run_measurement(case: Case, host: str) -> DevicePeak:
    """Measure the case's device peak in a process of its own; errors are the result's `problem`."""
    framework = case.axes.framework
    if framework not in list_measured_frameworks():
        return DevicePeak(host, problem=f"the measurement is not implemented for {framework}")
    numbers, cpus = NUMBER_FORMATS[case.axes.precision], str(case.cpus_per_rank)
    # shorter than what the watchdog takes for a stall
    limit_seconds = min(LIMIT_SECONDS, (case.stall_seconds or 2 * LIMIT_SECONDS) / 2)
    module = "dlperf_slurm.worker.peaks.device_peak"
    command = [sys.executable, "-m", module, host, framework, case.device, numbers, cpus]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=limit_seconds,
        )
    except subprocess.TimeoutExpired:
        return DevicePeak(host, problem=f"the measurement took longer than {limit_seconds:.0f} s")
    except OSError as error:
        return DevicePeak(host, problem=f"the measurement failed: {error}")
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = said[-1][:200] if said else f"exit code {done.returncode}"
        return DevicePeak(host, problem=f"the measurement failed: {last}")
    last_line = done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
    try:
        return build_dataclass(DevicePeak, json.loads(last_line), "the peak", is_complete=True)
    except ValueError as error:
        return DevicePeak(host, problem=f"the measurement failed: {error}"[:200])


def gather_peaks(case: Case, world: Any, peak: Optional[DevicePeak], parameter_count: int) -> Peaks:
    """Gather the device peaks of all hosts on rank 0 (none elsewhere), and time all-reduces.

    `peak` is this rank's result of `measure_peak`, `parameter_count` the number of gradients to
    all-reduce. All ranks must call this, after the measured steps.
    """
    all_reduces: Tuple[AllReduce, ...] = ()
    if is_measured(case, os.environ):
        all_reduces = tuple(time_all_reduces(case, world, parameter_count))
    devices = tuple(one for one in world.gather(peak) if one is not None)
    return Peaks(
        case.run_id,
        case.case_id,
        case.repeat,
        case.attempt,
        NUMBER_FORMATS[case.axes.precision],
        devices,
        all_reduces,
    )
