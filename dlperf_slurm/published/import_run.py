"""Imported runs of logs -> a run directory with a record and a copy of the log for each."""

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlperf_slurm.config.folders import find_user_name, get_host_name, make_absolute_path
from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import (
    FAILED,
    LOG_FILE,
    OK,
    OUT_OF_MEMORY,
    RECORD_FILE,
    STATUSES,
    STEP_SECONDS_FILE,
    WHOLE_JOB,
    Clock,
    Failure,
    RankResult,
    Record,
)
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.arrays import write_array
from dlperf_slurm.files.reading import open_file
from dlperf_slurm.files.writing import remove_file, write_file
from dlperf_slurm.jobs.journal import STAGED, STATE, Event, append_events
from dlperf_slurm.jobs.manifest import (
    IMPORT_SITE,
    MANIFEST_FILE,
    Manifest,
    PlannedCase,
    format_manifest,
)
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.partial_runs import LOCK_FILE, PARTIAL_SUFFIX, create_partial_run
from dlperf_slurm.jobs.private_values import hide_private_values
from dlperf_slurm.jobs.run_directory import CASES_FILE, SCRIPTS_DIR, Run
from dlperf_slurm.jobs.stage import find_git_state, make_run_id
from dlperf_slurm.jobs.task_tables import StringTable, format_case
from dlperf_slurm.logs import Identity
from dlperf_slurm.logs.runs import ImportedRun
from dlperf_slurm.logs.settings import CASE_SETTINGS, SETTINGS
from dlperf_slurm.matrix.axes import make_case_id
from dlperf_slurm.published.import_groups import describe_provenance, label_runs
from dlperf_slurm.version import __version__

GROUP_ID = "import"
UNKNOWN_SOURCE = "unknown"


def write_imported_run(
    results_dir: Path, name: str, runs: Sequence[ImportedRun], command: Sequence[str]
) -> Run:
    """Write a run directory for the logs, completely or not at all; logs of one case are repeats.

    `name` is the run's title, `command` the command line to note in the manifest. Raises InputError
    if a valid run is missing a setting that a record needs, if no run is left, or if the directory
    cannot be written.
    """
    cases = group_runs(runs)
    run_id = make_run_id(name, "import")
    run_dir = make_absolute_path(results_dir) / run_id
    partial = make_absolute_path(results_dir) / f".{run_id}{PARTIAL_SUFFIX}"
    manifest = _make_manifest(run_id, name, cases, command)
    try:
        with create_partial_run(partial):
            write_file(partial / MANIFEST_FILE, format_manifest(manifest).encode(), is_synced=True)
            (partial / MARKERS_DIR).mkdir()
            _write_records(partial, run_id, cases)
            remove_file(partial / LOCK_FILE)
            partial.rename(run_dir)
    except OSError as error:
        raise InputError(f"{results_dir}: the run cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Run(run_dir, manifest)


def group_runs(runs: Sequence[ImportedRun]) -> dict[str, list[ImportedRun]]:
    """Group the runs by case_id, and set their labels, which tell cases with equal settings apart.

    Failed runs with unknown settings are left out. Runs with other hardware, software or dates are
    different cases. Raises InputError if a valid run's settings are neither in its log nor in the
    log's name, or if no run is left.
    """
    problems = [
        f"{run.log}: neither the log nor its name states {' and '.join(missing)}; add "
        + " ".join(f"--set {name}=..." for name in missing)
        for run in runs
        for missing in [find_missing(run.identity)]
        if missing and run.status == OK
    ]
    if problems:
        raise InputError("\n".join(problems))
    cases: dict[str, list[ImportedRun]] = {}
    placed = [run for run in runs if not find_missing(run.identity)]
    for run, label in zip(placed, label_runs(placed)):
        labelled = replace(run, label=label)
        case_id = make_case_id(run.identity.model, _make_axes(labelled))
        # a label may have any characters
        cases.setdefault(re.sub(r"[^A-Za-z0-9._-]+", "_", case_id), []).append(labelled)
    if not cases:
        logs = ", ".join(run.log for run in runs[:5]) + ", ..." * (len(runs) > 5)
        raise InputError(
            f"{logs}: nothing was imported, as no log states all of {', '.join(SETTINGS)}; "
            "set the missing values with --set"
        )
    return cases


def find_missing(identity: Identity) -> list[str]:
    """Return the names of settings that a record needs and a log does not have.

    Among these is "devices" if the device count is no multiple of the node count.
    """
    missing = [name for name in SETTINGS if not getattr(identity, name)]
    if identity.nodes and identity.devices:
        try:
            topology = parse_topology(str(_make_topology(identity)))
        except ValueError:
            topology = None
        if topology is None or topology.world_size != identity.devices:
            missing.append("devices")
    return missing


def _make_axes(run: ImportedRun) -> Axes:
    """Make the axes of a run from the settings of its log; other axes have their defaults."""
    identity = run.identity
    return Axes(
        framework=identity.framework,
        topology=str(_make_topology(identity)),
        batch_size_per_device=identity.batch_size_per_device,
        precision=identity.precision,
        script=f"{_name_source(run)} {run.label}".strip(),
        **{name: getattr(identity, name) for name in CASE_SETTINGS if getattr(identity, name)},
    )


def _name_source(run: ImportedRun) -> str:
    """Return the format of a run's log, or "unknown"."""
    return run.format_name or UNKNOWN_SOURCE


def _make_topology(identity: Identity) -> Topology:
    return Topology(identity.nodes, max(1, identity.devices // identity.nodes))


def _make_manifest(
    run_id: str, name: str, cases: dict[str, list[ImportedRun]], command: Sequence[str]
) -> Manifest:
    """Make the manifest of an imported run, with IMPORT_SITE in place of a site's name.

    `cases` are the runs (repeats) by case id; `command` is the command line to note.
    """
    return Manifest(
        run_id=run_id,
        title=name,
        matrix_name=name,
        site_name=IMPORT_SITE,
        scheduler="local",
        created_at=_format_time(
            max((r.ended for runs in cases.values() for r in runs), default=0.0)
        )
        or format_now(),
        created_by=find_user_name(),
        created_on=get_host_name(),
        command=hide_private_values(command),
        tool_version=__version__,
        tool_git=find_git_state(),
        poll_seconds=1.0,
        slowest_poll_seconds=1.0,
        lost_after_seconds=1.0,
        cases=tuple(_make_planned_case(case_id, runs) for case_id, runs in cases.items()),
    )


def _make_planned_case(case_id: str, runs: Sequence[ImportedRun]) -> PlannedCase:
    """Make the manifest's entry for a case; `runs` are its repeats."""
    steps = {run.window.steps for run in runs if run.window}
    return PlannedCase(
        case_id=case_id,
        model=runs[0].identity.model,
        axes=_make_axes(runs[0]),
        repeats=len(runs),
        notes=(
            *dict.fromkeys(note for run in runs for note in run.notes),
            *describe_provenance(runs),
            *(
                f"{run.log} is incomplete: the publisher's rule ({run.publisher_rule}) gives "
                f"{run.publisher_samples_per_s:.4g} samples/s for the part that exists"
                for run in runs
                if run.status != OK and run.publisher_samples_per_s is not None
            ),
        ),
        reason="",
        # empty if repeats differ in their steps
        protocol={"measured_steps": steps.pop()} if len(steps) == 1 and 0 not in steps else {},
    )


def _format_time(seconds: float) -> str:
    """Format seconds of the log's clock as if they were UTC; "" if the log has no times."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if seconds else ""


def _write_records(folder: Path, run_id: str, cases: dict[str, list[ImportedRun]]) -> None:
    """Write records, step times and copies of the logs, and the files that list the array tasks."""
    import numpy

    rows: list[str] = []
    planned = StringTable("", "\n")
    events = [Event(STAGED, group_id=GROUP_ID)]
    for case_id, runs in cases.items():
        for repeat, run in enumerate(runs, start=1):
            attempt_dir = f"cases/{case_id}/r{repeat}/a1"
            start_dir = folder / attempt_dir / "s0"
            start_dir.mkdir(parents=True)
            record = _make_record(run, run_id, case_id, repeat)
            write_json(start_dir / RECORD_FILE, record, is_synced=False)
            with open_file(run.path) as log, (start_dir / LOG_FILE).open("xb") as copy:
                shutil.copyfileobj(log, copy)
            if run.window is not None and run.window.step_seconds:
                write_array(start_dir / STEP_SECONDS_FILE, numpy.array([run.window.step_seconds]))
            state = "COMPLETED" if run.status == OK else "FAILED"
            index = len(rows)
            events.append(Event(STATE, format_now(), GROUP_ID, "", index, state, detail=run.reason))
            offset = planned.add(format_case(record.case))
            rows.append(f"{run.identity.framework}\t{attempt_dir}\tlog\t-\t0\t{offset}\n")
    (folder / SCRIPTS_DIR).mkdir()
    write_file(folder / CASES_FILE, planned.text.encode())
    write_file(folder / SCRIPTS_DIR / f"{GROUP_ID}.tasks", "".join(rows).encode())
    append_events(folder, events)


def _make_record(run: ImportedRun, run_id: str, case_id: str, repeat: int) -> Record:
    """Make the record of a run: with the rank's result if it is valid, with a failure otherwise."""
    case = _make_case(run, run_id, case_id, repeat)
    is_ok = run.status == OK
    reason = run.reason if run.status in STATUSES else f"{run.status}: {run.reason}"
    failure = Failure(WHOLE_JOB, "", "", reason, "", run.status == OUT_OF_MEMORY)
    return Record(
        status=run.status if run.status in STATUSES else FAILED,
        reason=reason,
        case=case,
        started_at=_format_time(run.started),
        ended_at=_format_time(run.ended),
        parameter_count=0,
        clock=Clock("log", 0.0),
        ranks=(_make_rank(run, case),) if is_ok else (),
        failures=() if is_ok else (failure,),
        versions=dict(run.identity.versions),
        platform={"gpu_models": run.identity.hardware} if run.identity.hardware else {},
        job={"log": run.log},
        publisher_rule=run.publisher_rule,
        publisher_samples_per_s=run.publisher_samples_per_s or 0.0,
        printed=run.prints,
    )


def _make_case(run: ImportedRun, run_id: str, case_id: str, repeat: int) -> Case:
    return Case(
        run_id=run_id,
        case_id=case_id,
        repeat=repeat,
        attempt=1,
        axes=_make_axes(run),
        model=run.identity.model,
        model_parameters={},
        device="cuda",
        cpus_per_rank=0,
        warmup_steps=0,
        measured_steps=run.window.steps if run.window else 0,
        seed=0,
        log_format=_name_source(run),
        tokens_per_sample=run.identity.sequence_length,
        flops_per_sample=run.identity.flops_per_sample,
    )


def _make_rank(run: ImportedRun, case: Case) -> RankResult:
    """Make the result of the whole job; its seconds are computed from the throughput."""
    rate = run.samples_per_s or 0.0
    return RankResult(
        rank=WHOLE_JOB,
        local_rank=WHOLE_JOB,
        host="",
        device_name=run.identity.hardware,
        window_seconds=case.global_batch_size * case.measured_steps / rate,
        peak_memory_bytes=0,
        final_loss=0.0,
    )
