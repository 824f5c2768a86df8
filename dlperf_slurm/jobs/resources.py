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
_ACCOUNTING = ("clusters", "partition", "account", "qos", "constraint", "reservation")
# further settings of a whole job script, which must be equal for all its array tasks
_OF_SCRIPTS = (
    "cpus_per_rank",
    "array_throttle",
    "tasks_per_job",
    "directives",
    "template",
    "setup",
    "modules",
    "after_modules",
    "node",
)

# name of an option of sbatch without dashes, and its value; None for an option without one
Option = tuple[str, Optional[str]]


def list_account_options(site: Site) -> list[Option]:
    """List the sbatch options for account, partition, QOS and so on, as (name, value)."""
    values = [(name, getattr(site, name)) for name in _ACCOUNTING]
    return [(name, value) for name, value in values if value is not None]


def list_resource_options(site: Site, topology: Topology) -> list[Option]:
    """List sbatch options for tasks, cores, GPUs, memory and whole nodes: (name, value or None)."""
    per_node = LAUNCHERS[site.starting_launcher].count_tasks_per_node(topology)
    tasks = per_node * topology.nodes if site.task_request == "ntasks" else per_node
    cores = site.cpus_per_rank * topology.devices_per_node // per_node
    options: list[Option] = [(site.task_request, str(tasks)), ("cpus-per-task", str(cores))]
    gpus = f"{site.gpu_type}:" * bool(site.gpu_type) + str(topology.devices_per_node)
    if site.gpu_request == "gres":
        options.append(("gres", f"gpu:{gpus}"))
    elif site.gpu_request == "gpus-per-node":
        options.append(("gpus-per-node", gpus))
    if site.memory_mib_per_node is not None:
        options.append(("mem", str(site.memory_mib_per_node)))
    return [*options, ("exclusive", None)] if site.exclusive else options


def get_resource_key(job_site: Site, kind: JobKind) -> tuple[Hashable, ...]:
    """Return all settings that an array job has in common, as a dict key.

    Kinds of job with equal keys can share an array. `job_site` is the site resolved for `kind`.
    """
    return (
        job_site.get_time_limit_minutes(kind.topology),
        *list_resource_options(job_site, kind.topology),
        *make_container_parts(job_site, kind).directives,
        *list_account_options(job_site),
        *(getattr(job_site, name) for name in _OF_SCRIPTS),
    )
