"""Array tasks x site -> array jobs: those that ask for the same resources, in shuffled order."""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Optional

from dlperf_slurm.config.overrides import JobKind, find_job_kind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.resources import find_resources
from dlperf_slurm.matrix.expand import MatrixCase

# what an array task that shares its job has to end in, once it was told at its time limit
END_SECONDS = 20
# Ranks get a signal so long before the time limit, and write how far they got. Slurm may send it up
# to a minute early (sbatch(1), --signal), which is too early for a short limit.
WARNING_SECONDS = 60
SHORTEST_WARNED_MINUTES = 5


@dataclass(frozen=True)
class ArrayTask:
    """One element of an array job: a case with its repeat and attempt."""

    # there are a hundred thousand of them
    __slots__ = ("attempt", "case", "repeat")

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

    @cached_property
    def kinds(self) -> tuple[JobKind, ...]:
        """The kinds of jobs that its array tasks are of, each once."""
        return tuple(sorted({find_job_kind(task.case.axes) for task in self.array_tasks}))

    @property
    def frameworks(self) -> tuple[str, ...]:
        return tuple(sorted({kind.framework for kind in self.kinds}))

    @property
    def node_hours(self) -> float:
        """The node-hours of the array job at most: every array task at its time limit."""
        return len(self.array_tasks) * self.topology.nodes * self.time_limit_minutes / 60


def group_array_tasks(
    tasks: Sequence[ArrayTask], site: Site, max_array_size: int, suffix: str = ""
) -> tuple[Group, ...]:
    """The array jobs of array tasks: those that ask for the same, with no more than so many jobs.

    Frameworks share an array, so that their array tasks alternate on the nodes and a drift of the
    machine does not look like a difference between them.
    """
    by_kind: dict[JobKind, list[ArrayTask]] = {}
    for task in tasks:
        by_kind.setdefault(find_job_kind(task.case.axes), []).append(task)
    groups: list[Group] = []
    for topology in sorted({kind.topology for kind in by_kind}):
        shapes: dict[Hashable, list[ArrayTask]] = {}
        settled: dict[Hashable, Site] = {}
        # by framework, so that a further case does not give the shapes other numbers
        for kind in sorted(kind for kind in by_kind if kind.topology == topology):
            of_kind = site.settle(kind)
            resources = find_resources(of_kind, kind)
            settled.setdefault(resources, of_kind)
            shapes.setdefault(resources, []).extend(by_kind[kind])
        for number, (shared, same) in enumerate(shapes.items(), start=1):
            shape = f"-shape{number}" if number > 1 else ""
            name = f"{topology}{shape}{suffix}"
            same.sort(key=_shuffle_key)
            groups += _cut(same, settled[shared], max_array_size, name)
    return tuple(groups)


def _cut(tasks: Sequence[ArrayTask], settled: Site, max_jobs: int, group_id: str) -> list[Group]:
    """The groups of array tasks that share what they ask for, each of no more than so many jobs."""
    topology = tasks[0].case.topology
    tasks_per_job = find_tasks_per_job(settled)
    if settled.max_submitted is not None:
        # while one half of what the queue takes runs, the other one waits in it
        max_jobs = min(max_jobs, -(-settled.max_submitted // 2))
    size = (tasks_per_job or 1) * (max_jobs if settled.arrays else 1)
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


def get_warning_seconds(limit_minutes: int) -> int:
    """Return how long before a time limit the ranks are warned; 0 if the limit is too short."""
    return WARNING_SECONDS if limit_minutes >= SHORTEST_WARNED_MINUTES else 0


def _shuffle_key(task: ArrayTask) -> str:
    """The key of a random but fixed order.

    A hash is the same in every version of Python, a shuffle may not be.
    """
    text = f"{task.case.protocol.shuffle_seed}/{task.case.case_id}/{task.repeat}"
    return hashlib.sha256(text.encode()).hexdigest()
