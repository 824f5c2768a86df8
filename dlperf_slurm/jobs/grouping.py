"""Array tasks x site -> array jobs of equal resource requests, each in shuffled order."""

import hashlib
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional

from dlperf_slurm.config.overrides import JobKind, get_job_kind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.manifest import get_node
from dlperf_slurm.jobs.sbatch_options import get_resource_key
from dlperf_slurm.matrix.expand import MatrixCase

# seconds between the signal at its time limit and the kill of an array task that shares its job
END_SECONDS = 20


@dataclass(frozen=True)
class ArrayTask:
    """One measurement to submit: a case, with the numbers (from 1) of its repeat and attempt."""

    # a plan may have 100,000 of them
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
    """An array job: array tasks that request the same resources.

    With `tasks_per_job`, each element of the array runs that many array tasks one after the other;
    with None, each array task is an element. On a site without arrays, a group is a single plain
    job. If `node` is set, all jobs run on that node, or those nodes ("n1,n2"), one at a time.
    """

    group_id: str
    topology: Topology
    time_limit_minutes: int
    array_tasks: tuple[ArrayTask, ...]
    tasks_per_job: Optional[int] = None
    node: str = ""

    @property
    def job_count(self) -> int:
        """The number of Slurm jobs: the elements of an array, or 1 for a plain job."""
        return -(-len(self.array_tasks) // (self.tasks_per_job or 1))

    @property
    def job_minutes(self) -> int:
        """The time limit of a Slurm job in minutes: that of an array task.

        With `tasks_per_job`, the sum of those of its array tasks, with END_SECONDS more for each.
        """
        if self.tasks_per_job is None:
            return self.time_limit_minutes
        count = min(self.tasks_per_job, len(self.array_tasks))
        return -(-count * (60 * self.time_limit_minutes + END_SECONDS) // 60)

    @cached_property
    def kinds(self) -> tuple[JobKind, ...]:
        """The distinct kinds of job of the array tasks: (framework, gradient_sync, topology)."""
        return tuple(sorted({get_job_kind(task.case.axes) for task in self.array_tasks}))

    @property
    def node_hours(self) -> float:
        """The maximum node-hours of the array job: every array task at its time limit."""
        return len(self.array_tasks) * self.topology.nodes * self.time_limit_minutes / 60


def group_array_tasks(
    tasks: Sequence[ArrayTask], site: Site, max_array_size: int, suffix: str = ""
) -> tuple[Group, ...]:
    """Group array tasks with the same resource requests into array jobs of limited size.

    Frameworks share an array, so that their array tasks alternate on the nodes and a drift of the
    machine does not look like a difference between frameworks. `suffix` ends the ids of the groups,
    which begin with the topology: "2n8g", "2n8g-shape2".
    """
    by_kind: dict[JobKind, list[ArrayTask]] = {}
    for task in tasks:
        by_kind.setdefault(get_job_kind(task.case.axes), []).append(task)
    groups: list[Group] = []
    for topology in sorted({kind.topology for kind in by_kind}):
        shapes: dict[Hashable, list[ArrayTask]] = {}
        job_sites: dict[Hashable, Site] = {}
        # sorted, so that an additional case does not renumber the shapes
        for kind in sorted(kind for kind in by_kind if kind.topology == topology):
            of_kind = site.resolve(kind)
            resources = get_resource_key(of_kind, kind)
            job_sites.setdefault(resources, of_kind)
            shapes.setdefault(resources, []).extend(by_kind[kind])
        for number, (shared, same) in enumerate(shapes.items(), start=1):
            shape = f"-shape{number}" if number > 1 else ""
            name = f"{topology}{shape}{suffix}"
            same.sort(key=_shuffle_key)
            groups += _cut(same, job_sites[shared], max_array_size, name)
    return tuple(groups)


def group_by_node(
    tasks: Sequence[ArrayTask],
    nodes: Sequence[str],
    site: Site,
    max_array_size: int,
    suffix: str = "",
) -> tuple[Group, ...]:
    """Group the array tasks of a sweep into array jobs of one node or pair each, block after block.

    A repeat belongs to the node of `manifest.get_node`. Without `nodes`, the result is that of
    `group_array_tasks`, as are the other parameters.
    """
    if not nodes:
        return group_array_tasks(tasks, site, max_array_size, suffix)
    by_node: dict[str, list[ArrayTask]] = {node: [] for node in nodes}
    for task in tasks:
        by_node[get_node(task.repeat, nodes)].append(task)

    groups = []
    for node, own in by_node.items():
        ending = f"-{node.replace(',', '+')}{suffix}"
        for group in group_array_tasks(own, site, max_array_size, ending):
            # by blocks, so that all nodes measure a block at about the same time
            in_order = sorted(group.array_tasks, key=lambda task: (task.repeat - 1) // len(nodes))
            groups.append(replace(group, node=node, array_tasks=tuple(in_order)))
    return tuple(groups)


def _cut(tasks: Sequence[ArrayTask], job_site: Site, max_jobs: int, group_id: str) -> list[Group]:
    """Split array tasks with the same resource requests into groups of at most `max_jobs` jobs."""
    topology = tasks[0].case.topology
    tasks_per_job = compute_tasks_per_job(job_site)
    if job_site.max_submitted is not None:
        # two arrays fit the queue limit: one can wait while the other runs
        max_jobs = min(max_jobs, -(-job_site.max_submitted // 2))
    size = (tasks_per_job or 1) * (max_jobs if job_site.arrays else 1)
    return [
        Group(
            group_id=group_id + (f"-{start // size + 1}" if len(tasks) > size else ""),
            topology=topology,
            time_limit_minutes=job_site.get_time_limit_minutes(topology),
            array_tasks=tuple(tasks[start : start + size]),
            tasks_per_job=tasks_per_job,
        )
        for start in range(0, len(tasks), size)
    ]


def compute_tasks_per_job(job_site: Site) -> Optional[int]:
    """Return how many array tasks a Slurm job runs one after the other.

    None if each is an element of an array, and for the local scheduler, which runs array tasks one
    after the other anyway; without arrays, 1 for one each. `job_site` is the site resolved for the
    kind of job.
    """
    if job_site.scheduler == "local" or (job_site.arrays and job_site.tasks_per_job == 1):
        return None
    return job_site.tasks_per_job


def _shuffle_key(task: ArrayTask) -> str:
    """Return a sort key that gives array tasks a random but reproducible order.

    Unlike `random.shuffle`, a hash gives the same order in every version of Python.
    """
    text = f"{task.case.protocol.shuffle_seed}/{task.case.case_id}/{task.repeat}"
    return hashlib.sha256(text.encode()).hexdigest()


def make_rounds(nodes: Sequence[str]) -> list[list[str]]:
    """Return rounds of pairs such as "n1,n2", so that each pair is in one round.

    Circle method: N - 1 rounds of N / 2 pairs; with an odd N, N rounds, in each of which one node
    has no partner.
    """
    ring = [*range(len(nodes) + len(nodes) % 2)]
    half = len(ring) // 2
    rounds = []
    for _ in range(len(ring) - 1):
        pairs = [sorted(pair) for pair in zip(ring[:half], reversed(ring[half:]))]
        rounds.append([f"{nodes[a]},{nodes[b]}" for a, b in pairs if b < len(nodes)])
        ring.insert(1, ring.pop())
    return rounds


def choose_pairs(nodes: Sequence[str], count: int, seed: int) -> list[str]:
    """Return the pairs of `count` rounds, chosen at random, in the order of a sweep's repeats.

    The first pairs of all rounds come first, as repeats 1, 2, 3 are in blocks 1, 2, 3 of a run
    (`manifest.compute_block`), and a round is a block.
    """
    rounds = random.Random(seed).sample(make_rounds(nodes), count)
    return [pair for pairs in zip(*rounds) for pair in pairs]
