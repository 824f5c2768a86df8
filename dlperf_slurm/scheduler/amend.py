"""A run and new site values -> the changed scripts of its array jobs that are not submitted yet."""

import dataclasses
from collections.abc import Sequence

import tomli_w

from dlperf_slurm.config.overrides import get_job_kind
from dlperf_slurm.config.site import Site, merge_site_layers
from dlperf_slurm.config.toml_tables import TomlFile, parse_assignment, read_toml, validate_file
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.grouping import ArrayTask, Group, compute_tasks_per_job
from dlperf_slurm.jobs.journal import AMENDED, Event, append_event, hold_submit_lock
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, format_manifest
from dlperf_slurm.jobs.run_directory import SITE_FILE, Run
from dlperf_slurm.jobs.stage import render_changes, write_scripts
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler.retry import read_cases, read_site
from dlperf_slurm.scheduler.submit import find_unsubmitted, recover_interrupted

# keys that change only #SBATCH lines or when jobs are submitted, and no measured value
AMENDABLE = (
    *("account", "array_throttle", "constraint", "directives", "exclusive", "gpu_request"),
    *("gpu_type", "max_submitted", "memory_mib_per_node", "partition", "qos", "reservation"),
    "time_limit_minutes",
)


def amend_site(run: Run, assignments: Sequence[str]) -> tuple[Run, list[str]]:
    """Change site values for the array jobs of a run that are not submitted yet, and for retries.

    `assignments` are the words after `--set`, such as "partition=long". Returns the changed run,
    and a line for each change. A call that was killed can be repeated. Raises InputError for a
    value that is wrong or may not change, and if all array jobs are submitted; SchedulerError if
    another process is submitting the run.
    """
    before, path = read_site(run), run.path / SITE_FILE
    merged, _ = merge_site_layers([read_toml(path), *map(_read_assignment, assignments)])
    after = validate_file(Site, TomlFile(str(path), "", merged))
    changes = [
        f"{key}: {old!r} -> {new!r}"
        for key in AMENDABLE
        if (old := getattr(before, key)) != (new := getattr(after, key))
    ]
    if before.override != after.override:
        names = ", ".join(sorted({text.partition("=")[0].strip() for text in assignments}))
        changes.append(f"{names}: now set for all jobs, in place of values in [[override]]")
    with hold_submit_lock(run.path):
        recover_interrupted(run)
        group_ids = list(find_unsubmitted(run))
        if not group_ids:
            raise InputError(
                f"--set: all array jobs of {run.run_id} are already submitted and keep their "
                f"values; to measure with other values, cancel the run ({COMMAND} cancel "
                f"{run.path}) and submit its matrix again with --set KEY=VALUE"
            )
        # rendered first: a value that cannot be rendered changes no file
        groups = _find_groups(run, group_ids, after)
        scripts = render_changes(run.path, run.path, run.manifest, groups, after)
        if changes:
            append_event(run.path, Event(AMENDED, detail="; ".join(changes)))
            manifest = dataclasses.replace(
                run.manifest,
                amended=(*run.manifest.amended, *changes),
                max_submitted=after.max_submitted,
            )
            run = run._replace(manifest=manifest)
            text = format_manifest(manifest)
            write_file(run.path / MANIFEST_FILE, text.encode(), root=run.path, is_synced=True)
        text = tomli_w.dumps(after.model_dump(mode="json", exclude_none=True))
        write_file(path, text.encode(), root=run.path, is_synced=True)
        write_scripts(run.path, scripts)
    return run, changes


def _read_assignment(text: str) -> TomlFile:
    layer = parse_assignment(text)
    for key in layer.data:
        if key not in AMENDABLE:
            raise InputError(
                f"--set {text}: {key} of a run cannot be changed; allowed: {', '.join(AMENDABLE)}"
            )
    return layer


def _find_groups(run: Run, group_ids: Sequence[str], site: Site) -> list[Group]:
    """Return staged groups (array jobs), read from the run's files, with `site`'s time limits."""
    cases = read_cases(run)
    groups = []
    for group_id in group_ids:
        tasks = tuple(
            ArrayTask(cases[task.case_id], task.repeat, task.attempt)
            for task in run.read_tasks(group_id)
        )
        topology = tasks[0].case.topology
        job_site = site.resolve(get_job_kind(tasks[0].case.axes))
        limit = job_site.get_time_limit_minutes(topology)
        groups.append(Group(group_id, topology, limit, tasks, compute_tasks_per_job(job_site)))
    return groups
