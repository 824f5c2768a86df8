"""An external script, run instead of the worker -> its log, and from that the record."""

import os
from dataclasses import replace
from pathlib import Path
from typing import List, Sequence

from dlperf_slurm.contract.axes import DALI, FOLDER, ON_DEVICE
from dlperf_slurm.contract.case import CASE_FILE, SCRIPT_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import (
    FAILED,
    LOG_FILE,
    OK,
    OUT_OF_MEMORY,
    RECORD_FILE,
    WHOLE_JOB,
    Clock,
    Failure,
    RankResult,
    Record,
)
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.lines import read_lines
from dlperf_slurm.logs.runs import ImportedRun, ImportOptions, import_log
from dlperf_slurm.logs.settings import ALL_SETTINGS
from dlperf_slurm.worker.clock import LOG
from dlperf_slurm.worker.failed_record import make_failed_record
from dlperf_slurm.worker.nodes.devices import DeviceError, query_gpus
from dlperf_slurm.worker.processes import CommandRunner
from dlperf_slurm.worker.provenance import describe_job, describe_platform

# of the last line of a log, in a reason
LAST_LINE_CHARACTERS = 200
# limit of a query of nvidia-smi
DEVICE_SECONDS = 30


def run_script(attempt_dir: Path, command: Sequence[str]) -> int:
    """Run the attempt's script by the launcher `command`, write the record from the script's log.

    Returns 0 if the record is valid, else the script's exit code, or 1. A script whose log has
    twice the measured steps of the case after the warm-up is ended, as it may have no limit; one
    with a limit that is a little higher ends by itself, and prints its total.
    """
    case = read_json(attempt_dir / CASE_FILE, Case)
    enough = case.warmup_steps + 2 * case.measured_steps
    started_at = format_now()
    child = CommandRunner(has_session=True)
    with (attempt_dir / LOG_FILE).open("wb") as log:
        script = [*command, str(attempt_dir / SCRIPT_FILE)]
        exit_code = child.run(
            script, attempt_dir, log, log, lambda: _has_steps(case, attempt_dir / LOG_FILE, enough)
        )
    record = make_record(case, attempt_dir / LOG_FILE, exit_code)
    write_json(attempt_dir / RECORD_FILE, replace(record, started_at=started_at))
    return 0 if record.status == OK else exit_code or 1


def make_record(case: Case, log: Path, exit_code: int) -> Record:
    """Make a record from the log; a failed one if the script failed or the log differs.

    Of a script that was stopped, the exit code does not count, and only as many steps as the case
    asks for.
    """
    run = _read_log(case, log)
    if run.is_stopped:
        run = _read_log(case, log, _count_needed_lines(case, log))
    reason = run.reason if run.status != OK else _find_contradiction(case, run.identity)
    if exit_code != 0 and not run.is_stopped:
        reason = _add_end(reason, exit_code, log)
    if reason or run.samples_per_s is None or run.window is None:
        is_out_of_memory = run.status == OUT_OF_MEMORY
        failure = Failure(WHOLE_JOB, "", "", reason, "", is_out_of_memory)
        return make_failed_record(case, (failure,))
    tokens = case.tokens_per_sample or run.identity.sequence_length
    measured = replace(
        case, warmup_steps=0, measured_steps=run.window.steps, tokens_per_sample=tokens
    )
    samples = measured.global_batch_size * measured.measured_steps
    device = _find_device_name(case) or run.identity.hardware
    return Record(
        status=OK,
        reason=run.reason,
        case=measured,
        started_at="",
        ended_at=format_now(),
        parameter_count=0,
        clock=Clock(LOG, 0.0),
        ranks=(RankResult(WHOLE_JOB, WHOLE_JOB, "", device, samples / run.samples_per_s, 0, 0.0),),
        failures=(),
        versions=dict(run.identity.versions),
        platform=describe_platform(),
        job=describe_job(),
        publisher_rule=run.publisher_rule,
        publisher_samples_per_s=run.publisher_samples_per_s or 0.0,
        printed=run.prints,
    )


def _add_end(reason: str, exit_code: int, log: Path) -> str:
    """Append exit code and last line of the log to `reason`, unless it has that line already."""
    last = ""
    for line in read_lines(log):
        last = line.text.strip()[:LAST_LINE_CHARACTERS] or last
    if last and last in reason:
        return reason
    end = f"the script ended with exit code {exit_code}"
    end += f", after the line {last!r}" if last else ""
    return f"{reason}; {end}" if reason else end


def _find_device_name(case: Case) -> str:
    """Return the name of the GPUs of this node, as their vendor's data sheet has it, or ""."""
    if case.device != "cuda":
        return ""
    try:
        gpus = query_gpus(DEVICE_SECONDS, os.environ)
    except DeviceError:
        return ""
    names = {
        gpu.values.get("product_name", "") + " MIG" * (" instance " in gpu.name) for gpu in gpus
    }
    return names.pop() if len(names) == 1 else ""


def _count_needed_lines(case: Case, log: Path) -> int:
    """Count the lines up to the one with which the log has the measured steps of the case."""
    fewest, most = 1, sum(1 for _ in read_lines(log))
    while fewest < most:
        middle = (fewest + most) // 2
        if _has_steps(case, log, case.measured_steps, middle):
            most = middle
        else:
            fewest = middle + 1
    return most


def _has_steps(case: Case, log: Path, enough: int, most_lines: int = 0) -> bool:
    """Return whether the log, or its first lines, has a throughput of at least `enough` steps."""
    run = _read_log(case, log, most_lines)
    return run.status == OK and run.window is not None and run.window.steps >= enough


def _read_log(case: Case, log: Path, most_lines: int = 0) -> ImportedRun:
    """Read the only run of a log, or its first `most_lines`; a failed run if the log has several.

    Figures use the case's settings where the log has none; `identity` has those of the log alone.
    """
    asked = _describe_case(case)
    options = ImportOptions(
        case.log_format or "",
        case.log_rule or "",
        asked,
        least_steps=case.measured_steps,
        most_lines=most_lines,
        # the names of our own folders are those of the case
        reads_path=False,
    )
    runs = import_log(log, options)
    if len(runs) > 1:
        reason = f"the log contains {len(runs)} runs; allowed: one"
        return ImportedRun(str(log), log, case.log_format or "", asked, FAILED, reason)
    told = import_log(log, replace(options, settings=Identity()))[0].identity
    return replace(runs[0], identity=replace(told, versions=runs[0].identity.versions))


def _describe_case(case: Case) -> Identity:
    return Identity(
        framework=case.axes.framework,
        model=case.model,
        nodes=case.nodes,
        devices=case.world_size,
        batch_size_per_device=case.axes.batch_size,
        precision=case.axes.precision,
        mode=case.axes.mode,
        data=FOLDER if case.axes.data in (FOLDER, DALI) else ON_DEVICE,
        compiler=case.axes.compiler,
        # one rank has no gradients to synchronize, whatever its script is told
        gradient_sync=case.axes.gradient_sync if case.world_size > 1 else "",
    )


def _find_contradiction(case: Case, told: Identity) -> str:
    """Describe settings that differ between the log (`told`) and the case; "" if none do.

    The nodes are only inferred. Data is synthetic ("device") or real ("folder").
    """
    asked = _describe_case(case)
    differences: List[str] = [
        f"{name} is {getattr(told, name)} in the log but {getattr(asked, name)} in the case"
        for name in ALL_SETTINGS
        if name != "nodes"
        and getattr(asked, name)
        and getattr(told, name) not in ("", 0, getattr(asked, name))
    ]
    return "; ".join(differences)
