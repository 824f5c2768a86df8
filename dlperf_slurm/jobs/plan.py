"""Cases x site -> array jobs: what can run here, grouped by resource shape, in shuffled order."""

import hashlib
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Optional

from dlperf_slurm import slurm_client
from dlperf_slurm.config.overrides import JobKind, find_job_kind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import DALI, FOLDER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.obstacles import find_obstacle
from dlperf_slurm.jobs.resources import find_resources
from dlperf_slurm.jobs.run_directory import find_block
from dlperf_slurm.matrix.expand import Expansion, LeftOut, MatrixCase

# Slurm's default MaxArraySize is 1001: the largest index is 1000, from 0
DEFAULT_MAX_ARRAY_SIZE = 1001
# what an array task that shares its job has to end in, once it was told at its time limit
END_SECONDS = 20


@dataclass(frozen=True)
class ArrayTask:
    """One element of an array job: a case with its repeat and attempt."""

    case: MatrixCase
    repeat: int
    attempt: int

    @property
    def attempt_dir(self) -> str:
        """The directory of this attempt, relative to the run directory."""
        return f"cases/{self.case.case_id}/r{self.repeat}/a{self.attempt}"


@dataclass(frozen=True)
class Group:
    """One array job: array tasks that ask for the same resources.

    With `tasks_per_job` so many of them run in each job of the array, one after the other; without,
    each of them is a job. A group that is no array is one job.
    """

    group_id: str
    topology: Topology
    time_limit_minutes: int
    array_tasks: tuple[ArrayTask, ...]
    tasks_per_job: Optional[int] = None

    @property
    def job_count(self) -> int:
        """The number of Slurm's jobs: of elements, where it is an array."""
        return -(-len(self.array_tasks) // (self.tasks_per_job or 1))

    @property
    def job_minutes(self) -> int:
        """The time limit of a job: that of each array task in it, and the time that it ends in."""
        if self.tasks_per_job is None:
            return self.time_limit_minutes
        count = min(self.tasks_per_job, len(self.array_tasks))
        return -(-count * (60 * self.time_limit_minutes + END_SECONDS) // 60)

    @property
    def frameworks(self) -> tuple[str, ...]:
        return tuple(sorted({task.case.axes.framework for task in self.array_tasks}))

    @property
    def node_hours(self) -> float:
        """The node-hours of the array job at most: every array task at its time limit."""
        return len(self.array_tasks) * self.topology.nodes * self.time_limit_minutes / 60


@dataclass(frozen=True)
class Plan:
    """Everything that will be submitted, and what will not, with the reason."""

    cases: tuple[MatrixCase, ...]
    groups: tuple[Group, ...]
    left_out: tuple[LeftOut, ...]

    def find_node_hours(self, case: MatrixCase) -> float:
        """The node-hours of one case at most: every repeat at its time limit."""
        minutes = self._minutes_by_case[case.case_id]
        return case.protocol.repeats * case.topology.nodes * minutes / 60

    @cached_property
    def _minutes_by_case(self) -> dict[str, int]:
        return {
            task.case.case_id: group.time_limit_minutes
            for group in self.groups
            for task in group.array_tasks
        }

    @property
    def kinds(self) -> tuple[JobKind, ...]:
        """The kinds of jobs that the cases of the plan are of, each once."""
        return tuple(sorted({find_job_kind(case.axes) for case in self.cases}))

    @property
    def array_task_count(self) -> int:
        return sum(len(group.array_tasks) for group in self.groups)

    @property
    def job_count(self) -> int:
        """The number of Slurm's jobs that the queue takes."""
        return sum(group.job_count for group in self.groups)

    @property
    def node_hours(self) -> float:
        return sum(group.node_hours for group in self.groups)


def describe_plan(plan: Plan, site_name: str) -> dict[str, object]:
    """The plan as `plan --json` prints it."""
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


def make_plan(expansion: Expansion, site: Site, max_array_size: int) -> Plan:
    """The array jobs, as few as possible, of what the site and the adapters can run."""
    left_out = list(expansion.excluded)
    cases: list[MatrixCase] = []
    for case in expansion.cases:
        reason = find_obstacle(case, make_case(case, site, "", 1, 1), site)
        if reason is None:
            cases.append(case)
        else:
            left_out.append(LeftOut(case, reason))
    tasks = [
        ArrayTask(case, repeat, 1)
        for case in cases
        for repeat in range(1, case.protocol.repeats + 1)
    ]
    groups: tuple[Group, ...] = ()
    for block in range(1, 1 + max((count_blocks(case, site) for case in cases), default=0)):
        of_block = [
            task
            for task in tasks
            if find_block(task.repeat, count_blocks(task.case, site)) == block
        ]
        suffix = f"-block{block}" if block > 1 else ""
        groups += group_array_tasks(of_block, site, max_array_size, suffix)
    return Plan(tuple(cases), groups, tuple(left_out))


def count_blocks(case: MatrixCase, site: Site) -> int:
    """The array jobs over which the repeats of a case are spread.

    On one machine there is nothing to spread them over: its array jobs take turns.
    """
    if site.scheduler == "local":
        return 1
    return min(case.protocol.blocks, case.protocol.repeats)


def find_max_array_size(site: Site, must_reach_cluster: bool) -> int:
    """The number of elements that an array job may have: what the site says, else Slurm.

    It is Slurm's default where the cluster does not answer. Raises SchedulerError when the cluster
    takes no array jobs, or does not answer although it must.
    """
    if site.max_array_size is not None:
        return site.max_array_size
    if site.scheduler == "local":
        return DEFAULT_MAX_ARRAY_SIZE
    try:
        text = slurm_client.read_cluster_config(site.clusters or "").get(
            "MaxArraySize", "not shown"
        )
    except SchedulerError as error:
        if must_reach_cluster:
            raise SchedulerError(
                f"{error}\nTo run on this machine, without a scheduler: --site local"
            ) from error
        return DEFAULT_MAX_ARRAY_SIZE
    if not text.isdigit() or int(text) == 0:
        raise SchedulerError(f"this cluster takes no array jobs: its MaxArraySize is {text}")
    return int(text)


def list_missing_environments(kinds: Collection[JobKind], site: Site) -> list[str]:
    """A line for each framework of these kinds of jobs whose virtual environment is not there."""
    lines = []
    for kind in sorted(set(kinds)):
        framework = kind.framework
        venv = site.settle(kind).find_environment(framework).venv
        if venv is not None and not (Path(venv) / "bin" / "python").exists():
            lines.append(
                f"{framework}: no environment at {venv}; create it with `dlperf-slurm env create "
                f"{framework}`, or name your own under [environments.{framework}] of the site file"
            )
    return lines


def group_array_tasks(
    tasks: Sequence[ArrayTask], site: Site, max_array_size: int, suffix: str = ""
) -> tuple[Group, ...]:
    """The array jobs of array tasks: those that ask for the same, with no more than so many jobs.

    Frameworks share an array, so that their array tasks alternate on the nodes and a drift of the
    machine does not look like a difference between them.
    """
    groups: list[Group] = []
    for topology in sorted({task.case.topology for task in tasks}):
        shapes: dict[Hashable, list[ArrayTask]] = {}
        of_topology = [task for task in tasks if task.case.topology == topology]
        for task in sorted(of_topology, key=_shuffle_key):
            kind = find_job_kind(task.case.axes)
            shapes.setdefault(find_resources(site.settle(kind), kind), []).append(task)
        # by framework, so that a further case does not give the shapes other numbers
        ordered = sorted(shapes.values(), key=lambda same: min(map(_list_order, same)))
        for number, same in enumerate(ordered, start=1):
            shape = f"-shape{number}" if number > 1 else ""
            groups += _cut(same, site, max_array_size, f"{topology}{shape}{suffix}")
    return tuple(groups)


def _list_order(task: ArrayTask) -> tuple[str, str]:
    return task.case.axes.framework, task.case.axes.gradient_sync


def _cut(tasks: Sequence[ArrayTask], site: Site, max_jobs: int, group_id: str) -> list[Group]:
    """The groups of array tasks that share what they ask for, each of no more than so many jobs."""
    settled = site.settle(find_job_kind(tasks[0].case.axes))
    topology = tasks[0].case.topology
    tasks_per_job = find_tasks_per_job(settled)
    if site.max_submitted is not None:
        # while one half of what the queue takes runs, the other one waits in it
        max_jobs = min(max_jobs, -(-site.max_submitted // 2))
    size = (tasks_per_job or 1) * (max_jobs if site.arrays else 1)
    return [
        Group(
            group_id=group_id + (f"-{start // size + 1}" if len(tasks) > size else ""),
            topology=topology,
            time_limit_minutes=settled.find_time_limit_minutes(topology),
            array_tasks=tuple(tasks[start : start + size]),
            tasks_per_job=tasks_per_job,
        )
        for start in range(0, len(tasks), size)
    ]


def find_tasks_per_job(settled: Site) -> Optional[int]:
    """How many array tasks share a job of Slurm; None where each is an element of an array.

    On one machine array tasks take turns as they are.
    """
    if settled.scheduler == "local" or (settled.arrays and settled.tasks_per_job == 1):
        return None
    return settled.tasks_per_job


def _shuffle_key(task: ArrayTask) -> str:
    """The key of a random but fixed order.

    A hash is the same in every version of Python, a shuffle may not be.
    """
    text = f"{task.case.protocol.shuffle_seed}/{task.case.case_id}/{task.repeat}"
    return hashlib.sha256(text.encode()).hexdigest()


def make_case(case: MatrixCase, site: Site, run_id: str, repeat: int, attempt: int) -> Case:
    """The case as the worker reads it."""
    limit_mib = case.protocol.memory_limit_mib_per_device
    has_files = case.axes.data in (FOLDER, DALI)
    return Case(
        run_id=run_id,
        case_id=case.case_id,
        repeat=repeat,
        attempt=attempt,
        axes=case.axes,
        model=case.model,
        model_parameters=dict(case.model_parameters),
        device=site.device,
        cpus_per_rank=site.settle(find_job_kind(case.axes)).cpus_per_rank,
        warmup_steps=case.protocol.warmup_steps,
        measured_steps=case.protocol.measured_steps,
        # repeats of a training have a seed each, as accuracies are published over several seeds
        seed=case.protocol.seed + (repeat - 1 if case.training.epochs else 0),
        log_format=case.script_table.format if case.script_table else None,
        log_rule=(case.script_table.rule or None) if case.script_table else None,
        batch_size_step=case.protocol.batch_size_step,
        memory_limit_bytes=limit_mib * 2**20 if limit_mib else 0,
        data_dir=site.find_dataset_path(case.dataset) if has_files else "",
        training=case.training,
        telemetry_interval_seconds=case.protocol.telemetry_interval_seconds,
        stall_seconds=case.protocol.stall_seconds,
    )
