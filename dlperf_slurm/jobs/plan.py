"""Cases x site -> a plan: the array jobs to submit, and the cases left out with the reason."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dlperf_slurm import slurm_client
from dlperf_slurm.config.folders import describe_denied, get_creation_command
from dlperf_slurm.config.overrides import JobKind, get_job_kind
from dlperf_slurm.config.site import LoadedSite, Site
from dlperf_slurm.contract.axes import DALI, FOLDER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.grouping import ArrayTask, Group, group_by_node
from dlperf_slurm.jobs.manifest import compute_block
from dlperf_slurm.jobs.unsupported import explain_unsupported
from dlperf_slurm.matrix.expand import ExcludedCase, Expansion, MatrixCase
from dlperf_slurm.matrix.file import MatrixFile
from dlperf_slurm.matrix.settings import find_least_seconds

# Slurm's default MaxArraySize is 1001: the largest index is 1000, from 0
DEFAULT_MAX_ARRAY_SIZE = 1001


@dataclass(frozen=True)
class Plan:
    """The array jobs to submit, and the cases left out with the reason.

    `sites` has the site resolved for each kind of job. `job_cases` has the cases as the worker
    reads them, by case id, with an empty run id.
    """

    cases: tuple[MatrixCase, ...]
    groups: tuple[Group, ...]
    left_out: tuple[ExcludedCase, ...]
    sites: Mapping[JobKind, Site]
    job_cases: Mapping[str, Case]

    def compute_node_hours(self, case: MatrixCase) -> float:
        """Return the maximum node-hours of a case: every repeat at its time limit."""
        minutes = self.limit_minutes[case.case_id]
        return case.protocol.repeats * case.topology.nodes * minutes / 60

    @cached_property
    def limit_minutes(self) -> dict[str, int]:
        """The time limit of an array task in minutes, by case id."""
        return {
            task.case.case_id: group.time_limit_minutes
            for group in self.groups
            for task in group.array_tasks
        }

    @property
    def array_task_count(self) -> int:
        return sum(len(group.array_tasks) for group in self.groups)

    @property
    def job_count(self) -> int:
        """The number of Slurm jobs, each element of an array counted."""
        return sum(group.job_count for group in self.groups)

    @property
    def node_hours(self) -> float:
        return sum(group.node_hours for group in self.groups)


class PlannedMatrix(NamedTuple):
    """A matrix, its site and their plan: all that is needed to stage a run.

    `within_seconds` is the time budget of a local run (`--within`), 0 without one. `nodes` and
    `absent_nodes` are those of a sweep.
    """

    file: MatrixFile
    loaded: LoadedSite
    plan: Plan
    within_seconds: float = 0.0
    nodes: Sequence[str] = ()
    absent_nodes: Sequence[str] = ()


def describe_plan(plan: Plan, site_name: str) -> dict[str, object]:
    """Return the JSON of `plan --json`: groups (array jobs), cases, left-out ones, totals."""
    return {
        "site": site_name,
        "groups": [
            {
                "group": group.group_id,
                "array_tasks": len(group.array_tasks),
                "jobs": group.job_count,
                "topology": str(group.topology),
                "time_limit_minutes": group.time_limit_minutes,
                "node_hours": group.node_hours,
            }
            for group in plan.groups
        ],
        "cases": [
            {"case_id": case.case_id, "repeats": case.protocol.repeats} for case in plan.cases
        ],
        "left_out": [
            {"case_id": left_out.case.case_id, "reason": left_out.reason}
            for left_out in plan.left_out
        ],
        "array_tasks": plan.array_task_count,
        "jobs": plan.job_count,
        "node_hours": plan.node_hours,
    }


def resolve(
    expansion: Expansion, site: Site, max_array_size: int, nodes: Sequence[str] = ()
) -> Plan:
    """Plan the cases of a matrix on a site, in as few array jobs as possible.

    Cases that the site or their framework cannot run are left out. An array job has at most
    `max_array_size` elements. With `nodes`, each repeat runs on one of them (`manifest.get_node`).
    """
    left_out = list(expansion.excluded)
    cases: list[MatrixCase] = []
    job_cases: dict[str, Case] = {}
    sites = site.resolve_each(get_job_kind(case.axes) for case in expansion.cases)
    for case in expansion.cases:
        job_site = sites[get_job_kind(case.axes)]
        job_case = make_case(case, job_site, "", 1, 1)
        reason = explain_unsupported(case, job_case, job_site)
        if reason is None:
            cases.append(case)
            job_cases[case.case_id] = job_case
        else:
            left_out.append(ExcludedCase(case, reason))
    by_block: dict[int, list[ArrayTask]] = {}
    for case in cases:
        blocks = count_blocks(case, site)
        for repeat in range(1, case.protocol.repeats + 1):
            of_block = by_block.setdefault(compute_block(repeat, blocks), [])
            of_block.append(ArrayTask(case, repeat, 1))
    groups: tuple[Group, ...] = ()
    for block, tasks in sorted(by_block.items()):
        suffix = f"-block{block}" if block > 1 else ""
        groups += group_by_node(tasks, nodes, site, max_array_size, suffix)
    planned = {kind: sites[kind] for group in groups for kind in group.kinds}
    return Plan(tuple(cases), groups, tuple(left_out), planned, job_cases)


def count_blocks(case: MatrixCase, site: Site) -> int:
    """Return the number of array jobs over which the repeats of a case are spread.

    It is `protocol.blocks`, at most one for each repeat, or 1 with the local scheduler, which runs
    array jobs one after the other.
    """
    if site.scheduler == "local":
        return 1
    return min(case.protocol.blocks, case.protocol.repeats)


def get_max_array_size(site: Site, must_reach_cluster: bool) -> int:
    """Return the MaxArraySize of the site, else of the cluster, else Slurm's default.

    The default also holds where users may not read the cluster's configuration. Raises
    SchedulerError if the cluster has array jobs disabled and the site uses them; with
    `must_reach_cluster`, also if the cluster does not answer.
    """
    if site.max_array_size is not None:
        return site.max_array_size
    if site.scheduler == "local" or not site.arrays:
        return DEFAULT_MAX_ARRAY_SIZE
    try:
        text = slurm_client.read_cluster_config(site.clusters or "").get(
            "MaxArraySize", "not in `scontrol show config`"
        )
    except SchedulerError as error:
        if must_reach_cluster and not slurm_client.is_forbidden(str(error)):
            raise SchedulerError(
                f"{error}\nTo run on this machine, without Slurm: --site local"
            ) from error
        return DEFAULT_MAX_ARRAY_SIZE
    if not text.isdigit() or int(text) == 0:
        raise SchedulerError(
            f"array jobs cannot be used: the cluster's MaxArraySize is {text}. For plain jobs, set "
            "arrays = false in the site file, or --set arrays=false"
        )
    return int(text)


def is_denied(venv: str) -> bool:
    """Return whether there is an environment at the path `venv` that this user may not read."""
    return os.path.lexists(venv) and not os.access(venv, os.R_OK | os.X_OK)


def list_missing_environments(sites: Mapping[JobKind, Site]) -> list[str]:
    """Return one message for each virtual environment that does not exist, or may not be read."""
    lines = []
    for kind, site in sites.items():
        framework = kind.framework
        venv = site.find_environment(framework).venv
        # Path.exists raises an error for a folder that this user may not read
        if venv is not None and not os.path.exists(f"{venv}/bin/python"):  # noqa: PTH110
            if is_denied(venv):
                lines.append(f"{framework}: {describe_denied(Path(venv))}")
                continue
            lines.append(
                f"{framework}: no environment at {venv}; create it with "
                f"`{get_creation_command(framework, site.device)}`, or set your own in "
                f"[environments.{framework}] of the site file"
            )
    return list(dict.fromkeys(lines))


def compute_seed(case: MatrixCase, repeat: int) -> int:
    """Return the seed of a repeat: that of the protocol, plus repeat - 1 if it trains to accuracy.

    Accuracies are published over several seeds.
    """
    return case.protocol.seed + (repeat - 1 if case.training.epochs else 0)


def make_case(case: MatrixCase, job_site: Site, run_id: str, repeat: int, attempt: int) -> Case:
    """Return an attempt's case as the worker reads it; `job_site` is resolved for its job kind."""
    limit_mib = case.protocol.memory_limit_mib_per_device
    has_files = case.axes.data in (FOLDER, DALI) and case.dataset
    script = case.script_table
    return Case(
        run_id=run_id,
        case_id=case.case_id,
        repeat=repeat,
        attempt=attempt,
        axes=case.axes,
        model=case.model,
        model_parameters=dict(case.model_parameters),
        device=job_site.device,
        cpus_per_rank=job_site.cpus_per_rank,
        warmup_steps=case.protocol.warmup_steps,
        measured_steps=case.protocol.measured_steps,
        seed=compute_seed(case, repeat),
        batch_size_step=case.protocol.batch_size_step,
        memory_limit_bytes=limit_mib * 2**20 if limit_mib else 0,
        data_dir=job_site.find_dataset_path(case.dataset) if has_files else "",
        training=case.training,
        telemetry_interval_seconds=case.protocol.telemetry_interval_seconds,
        stall_seconds=case.protocol.stall_seconds,
        log_format=script.format if script else None,
        log_rule=(script.rule or None) if script else None,
        tokens_per_sample=(script.tokens_per_sample or 0) if script else 0,
        flops_per_sample=(script.flops_per_sample or 0.0) if script else 0.0,
        **find_least_seconds(case.protocol, case.axes, case.training.epochs),
    )
