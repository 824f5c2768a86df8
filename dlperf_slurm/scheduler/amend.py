"""A run and new site values -> the changed scripts of its array jobs that are not submitted yet."""

import dataclasses
from collections.abc import Sequence

import tomli_w

from dlperf_slurm.config.layers import SettingsLayer, merge_layers
from dlperf_slurm.config.overrides import OVERRIDE, collect_overrides, get_job_kind
from dlperf_slurm.config.site import Site, find_layer_problems
from dlperf_slurm.config.toml_tables import (
    ProblemCollector,
    TomlFile,
    parse_assignment,
    read_toml,
    validate,
)
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import InputError, raise_problems
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.case_file import read_texts
from dlperf_slurm.jobs.grouping import ArrayTask, Group, compute_tasks_per_job
from dlperf_slurm.jobs.journal import AMENDED, Event, append_event, hold_submit_lock
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, format_manifest
from dlperf_slurm.jobs.render import render_scripts
from dlperf_slurm.jobs.run_directory import (
    CASES_FILE,
    EXTERNAL_SCRIPTS_FILE,
    MATRIX_FILE,
    SITE_FILE,
    Run,
)
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler.retry import read_site
from dlperf_slurm.scheduler.submit import find_unsubmitted, recover_interrupted

# keys that change only #SBATCH lines or when jobs are submitted, and no measured value
AMENDABLE = (
    "account",
    "array_throttle",
    "constraint",
    "directives",
    "exclusive",
    "gpu_request",
    "gpu_type",
    "max_submitted",
    "memory_mib_per_node",
    "partition",
    "qos",
    "reservation",
    "time_limit_minutes",
)


def amend_site(run: Run, assignments: Sequence[str]) -> tuple[Run, list[str]]:
    """Change site values for the array jobs of a run that are not submitted yet, and for retries.

    `assignments` are the words after `--set`, such as "partition=long". Returns the changed run,
    and a line for each change. A call that was killed can be repeated. Raises InputError for a
    value that is wrong or may not change, and if all array jobs are submitted; SchedulerError if
    another process is submitting the run.
    """
    before = read_site(run)
    after = _merge(run, assignments)
    changes = [
        f"{key}: {old!r} -> {new!r}"
        for key in AMENDABLE
        if (old := getattr(before, key)) != (new := getattr(after, key))
    ]
    if before.override != after.override:
        keys = sorted({text.partition("=")[0].strip() for text in assignments})
        changes.append(f"{', '.join(keys)}: now set for all jobs, in place of [[override]]")
    with hold_submit_lock(run.path):
        recover_interrupted(run)
        group_ids = list(find_unsubmitted(run))
        if not group_ids:
            raise InputError(
                f"--set: all array jobs of {run.run_id} are already submitted and keep their "
                f"values; to change them, first cancel the jobs: {COMMAND} cancel {run.path}; "
                f"then: {COMMAND} retry {run.path} --set KEY=VALUE"
            )
        # rendered first: a value that cannot be rendered changes no file
        groups = _find_groups(run, group_ids, after)
        earlier = {name: read_texts(run.path, name) for name in (CASES_FILE, EXTERNAL_SCRIPTS_FILE)}
        scripts = render_scripts(
            groups, after, run.run_id, run.path, run.manifest.headline, earlier=earlier
        )
        if changes:
            append_event(run.path, Event(AMENDED, format_now(), detail="; ".join(changes)))
            amended = (*run.manifest.amended, *changes)
            run = run._replace(
                manifest=dataclasses.replace(
                    run.manifest, amended=amended, max_submitted=after.max_submitted
                ),
            )
            manifest = format_manifest(run.manifest).encode()
            write_file(run.path / MANIFEST_FILE, manifest, root=run.path, is_synced=True)
        text = tomli_w.dumps(after.model_dump(mode="json", exclude_none=True))
        write_file(run.path / SITE_FILE, text.encode(), root=run.path, is_synced=True)
        for relative, script in scripts.items():
            if script == earlier.get(relative):
                continue
            write_file(run.path / relative, script.encode(), root=run.path, is_synced=True)
    return run, changes


def _merge(run: Run, assignments: Sequence[str]) -> Site:
    """Return the run's site with the assigned values; raise InputError with all problems."""
    layers = [SettingsLayer(read_toml(run.path / SITE_FILE)), *map(_read_assignment, assignments)]
    raise_problems([problem for layer in layers for problem in find_layer_problems(layer)])
    merged, _ = merge_layers(layers)
    merged[OVERRIDE] = collect_overrides(layers)
    reporter = ProblemCollector(TomlFile(str(run.path / SITE_FILE), "", merged))
    site = validate(Site, merged, reporter)
    raise_problems(reporter.problems)
    assert site is not None, "valid layers make a valid site"
    return site


def _read_assignment(text: str) -> SettingsLayer:
    layer = SettingsLayer(parse_assignment(text))
    for key in layer.data:
        if key not in AMENDABLE:
            raise InputError(
                f"--set {text}: {key} of a run cannot be changed; allowed: {', '.join(AMENDABLE)}"
            )
    return layer


def _find_groups(run: Run, group_ids: Sequence[str], site: Site) -> list[Group]:
    """Read staged groups back from the run's files, with the time limits that `site` has now."""
    cases = {
        case.case_id: case for case in expand_matrix(read_matrix(run.path / MATRIX_FILE)).cases
    }
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
