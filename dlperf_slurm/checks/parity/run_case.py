"""A small case -> its parity.json, from the framework's Python, launched as array tasks are."""

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.overrides import get_job_kind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.parity import PARITY_FILE, Parity
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import DlperfError, InputError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.decode import read_json
from dlperf_slurm.jobs.render import render_verification
from dlperf_slurm.jobs.stage import freeze_code
from dlperf_slurm.scheduler.local import end_process_group
from dlperf_slurm.scheduler.machine_lock import lock_machine
from dlperf_slurm.slurm_client import DEVICE_VARIABLES, clean_environment
from dlperf_slurm.worker.failed_record import read_failures
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.support import find_unsupported

SCRIPT_FILE = "verify.sh"
LOG_FILE = "log"


class VerificationError(DlperfError):
    """A case of `parity` that failed; the message says why, and where its log is."""

    is_left_out = False


class UnsupportedError(VerificationError):
    """A case of `parity` that the framework's adapter does not support."""

    is_left_out = True


@dataclass(frozen=True)
class RunContext:
    """The site, the folder and the progress reporting that all cases of `parity` share."""

    site: Site
    folder: Path
    report: Callable[[str], None]


def make_workplace(site: Site, folder: Path, report: Callable[[str], None]) -> RunContext:
    """Create a new folder for the cases of `parity`, with a copy of the worker's code.

    `report` gets progress messages. Raises InputError if the folder cannot be created.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # private, since its scripts contain environment variables from --set
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created: {error}") from error
    freeze_code(folder)
    return RunContext(site, folder.absolute(), report)


def run_case(
    case: Case,
    workplace: RunContext,
    suffix: str = "",
    data_rank: int = 0,
    references: Sequence[Path] = (),
) -> Path:
    """Run a case of `parity` unless its parity.json exists already; return its folder.

    `suffix` ends the folder's name, as one case may be run in several ways. `data_rank` is the rank
    whose data a single rank reads; `references` are folders of earlier cases that its gradients are
    compared with. Raises UnsupportedError if the framework does not support the case,
    VerificationError if the case failed.
    """
    reason = find_unsupported(case)
    if reason:
        raise UnsupportedError(reason)
    topology = Topology(case.nodes, case.devices_per_node)
    clip = "-clip" if case.axes.clip_global_norm else ""
    parts = (case.axes.framework, case.model, topology, case.axes.gradient_sync)
    # the reference for a reduced precision may have other sizes
    sizes = load_model(case.model).VERIFICATION.model_parameters
    own_sizes = "-reduced" if case.model_parameters != sizes else ""
    name = "-".join([*map(str, parts), *list_variant(case.axes)]) + own_sizes + clip + suffix
    folder = workplace.folder / name
    if (folder / PARITY_FILE).exists():
        return folder
    workplace.report(name)
    folder.mkdir(exist_ok=True)
    write_json(folder / CASE_FILE, replace(case, case_id=name))
    options = [f"--data-rank={data_rank}", *(f"--reference={path}" for path in references)]
    script = render_verification(
        get_job_kind(case.axes), workplace.site, options, workplace.folder, folder
    )
    write_file(folder / SCRIPT_FILE, script.encode(), root=workplace.folder)
    minutes = workplace.site.get_time_limit_minutes(topology)
    is_local = workplace.site.scheduler == "local"
    with lock_machine() if is_local else nullcontext():
        exit_code = run_script(folder / SCRIPT_FILE, folder / LOG_FILE, 60 * minutes)
    failures = read_failures(folder)
    if failures:
        first = failures[0]
        raise VerificationError(f"{first.error}: {first.message} (see {folder / LOG_FILE})")
    if exit_code != 0 or not (folder / PARITY_FILE).exists():
        how = "the case left no result: "
        how += f"it did not end in {minutes} min" if exit_code is None else f"exit code {exit_code}"
        raise VerificationError(f"{how}; see {folder / LOG_FILE}")
    return folder


def run_script(
    script: Path, log: Path, limit_seconds: float, arguments: Sequence[str] = ()
) -> Optional[int]:
    """Run a bash script, all output to `log`; return its exit code, None if killed at the limit."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", str(script), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=clean_environment(os.environ, DEVICE_VARIABLES),
            start_new_session=True,
        )
        try:
            return process.wait(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                end_process_group(process)


def list_variant(axes: Axes) -> list[str]:
    """List the values of precision, compiler and memory format that are not `parity`'s defaults."""
    default = load_adapter(axes.framework).SUPPORTED["compiler"][0]
    values = ((axes.precision, "fp32"), (axes.compiler, default), (axes.memory_format, "default"))
    return [value for value, plain in values if value != plain]


def read_parity(folder: Path) -> Parity:
    """Read the parity.json of a folder; raises VerificationError if it is invalid."""
    try:
        return read_json(folder / PARITY_FILE, Parity)
    except FileProblem as error:
        raise VerificationError(str(error)) from error
