"""A site resolved for a kind of job -> the sbatch options of the job.

Array tasks can share an array job only if these options are equal.
"""

from collections.abc import Hashable
from typing import Optional

from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.launch_command import make_container_parts
from dlperf_slurm.launchers import LAUNCHERS

# sbatch options that have the same name in site files
WHO_AND_WHERE = ("clusters", "partition", "account", "qos", "constraint", "reservation")
# further settings of a whole job script, which must be equal for all its array tasks
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


def list_account_options(site: Site) -> list[tuple[str, str]]:
    """List the sbatch options for account, partition, QOS and so on, as (name, value)."""
    values = [(name, getattr(site, name)) for name in WHO_AND_WHERE]
    return [(name, value) for name, value in values if value is not None]


def make_gpu_directive(site: Site, devices_per_node: int) -> Optional[str]:
    """Return the sbatch option that requests GPUs, such as "--gpus-per-node=8"; None for none."""
    if site.gpu_request == "none":
        return None
    kind = f"{site.gpu_type}:" if site.gpu_type else ""
    if site.gpu_request == "gres":
        return f"--gres=gpu:{kind}{devices_per_node}"
    return f"--gpus-per-node={kind}{devices_per_node}"


def make_task_directives(site: Site, topology: Topology) -> list[str]:
    """Return the sbatch options for the number of tasks and cores: "--ntasks-per-node=8" etc."""
    per_node = LAUNCHERS[site.starting_launcher].count_tasks_per_node(topology)
    if site.task_request == "ntasks":
        tasks = f"--ntasks={per_node * topology.nodes}"
    else:
        tasks = f"--ntasks-per-node={per_node}"
    cores = site.cpus_per_rank * topology.devices_per_node // per_node
    return [tasks, f"--cpus-per-task={cores}"]


def list_container_directives(job_site: Site, kind: JobKind) -> list[str]:
    """Return the sbatch options that a framework's container needs; [] for most runtimes."""
    return list(make_container_parts(job_site, kind, ()).directives)


def get_resource_key(job_site: Site, kind: JobKind) -> tuple[Hashable, ...]:
    """Return all settings that an array job has in common, as a dict key.

    Kinds of job with equal keys can share an array. `job_site` is the site resolved for `kind`.
    """
    topology = kind.topology
    return (
        job_site.get_time_limit_minutes(topology),
        make_gpu_directive(job_site, topology.devices_per_node),
        *make_task_directives(job_site, topology),
        *list_container_directives(job_site, kind),
        *list_account_options(job_site),
        *(getattr(job_site, name) for name in _OF_SCRIPTS),
    )
