"""A site as jobs of one kind have it -> what such a job asks for: what array tasks must share."""

from collections.abc import Hashable
from typing import Optional

from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.start_command import make_container_parts
from dlperf_slurm.launchers import LAUNCHERS

# sbatch's options that name who asks, and for what, as site files name them too
WHO_AND_WHERE = ("clusters", "partition", "account", "qos", "constraint", "reservation")
# further settings of a whole job script, which its array tasks cannot have each for itself
_OF_SCRIPTS = (
    "cpus_per_rank",
    "exclusive",
    "memory_mib_per_node",
    "array_throttle",
    "tasks_per_job",
    "directives",
    "template",
    "setup",
    "modules",
    "after_modules",
    "node",
)


def list_who_and_where(site: Site) -> list[tuple[str, str]]:
    """The options of sbatch that name who asks and for what, each with its value."""
    values = [(name, getattr(site, name)) for name in WHO_AND_WHERE]
    return [(name, value) for name, value in values if value is not None]


def make_gpu_directive(site: Site, devices_per_node: int) -> Optional[str]:
    """The option of sbatch that asks for GPUs; None where nodes come with theirs."""
    if site.gpu_request == "none":
        return None
    kind = f"{site.gpu_type}:" if site.gpu_type else ""
    if site.gpu_request == "gres":
        return f"--gres=gpu:{kind}{devices_per_node}"
    return f"--gpus-per-node={kind}{devices_per_node}"


def make_task_directives(site: Site, topology: Topology) -> list[str]:
    """The options of sbatch that ask for tasks, and for the cores of each."""
    per_node = LAUNCHERS[site.starting_launcher].count_tasks_per_node(topology)
    if site.task_request == "ntasks":
        tasks = f"--ntasks={per_node * topology.nodes}"
    else:
        tasks = f"--ntasks-per-node={per_node}"
    cores = site.cpus_per_rank * topology.devices_per_node // per_node
    return [tasks, f"--cpus-per-task={cores}"]


def list_container_directives(settled: Site, kind: JobKind) -> list[str]:
    """The options of sbatch that the container of a framework needs."""
    return list(make_container_parts(settled, kind, ()).directives)


def find_resources(settled: Site, kind: JobKind) -> tuple[Hashable, ...]:
    """All that array tasks of one array job have alike; two that are equal can share a job."""
    topology = kind.topology
    return (
        settled.find_time_limit_minutes(topology),
        make_gpu_directive(settled, topology.devices_per_node),
        *make_task_directives(settled, topology),
        *list_container_directives(settled, kind),
        *list_who_and_where(settled),
        *(getattr(settled, name) for name in _OF_SCRIPTS),
    )
