"""An array job and its site -> the sbatch options of its script, and its directives.

Array tasks can share an array job only if these options are equal.
"""

from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.config.job_settings import check_directive
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.launch_command import list_shape_values, make_container_parts, render_word
from dlperf_slurm.jobs.run_directory import SCRIPTS_DIR, make_job_name
from dlperf_slurm.launchers import LAUNCHERS

if TYPE_CHECKING:
    from dlperf_slurm.jobs.grouping import Group

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
# Ranks get a signal this long before the time limit, and record how far they got. Slurm may send it
# up to a minute early (sbatch(1), --signal), which is too early for a short limit.
WARNING_SECONDS = 60
SHORTEST_WARNED_MINUTES = 5

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


def list_options(group: "Group", site: Site, run_id: str, run_dir: Path) -> list[Option]:
    """List the sbatch options of a group's script as (name, value or None), without directives."""
    throttle = 1 if group.node else site.array_throttle
    array = f"0-{group.job_count - 1}" + (f"%{throttle}" if throttle else "")
    warning_seconds = get_warning_seconds(group.job_minutes)
    # a plain job counts as element 0 of an array
    log_name = "%A_%a" if site.arrays else "%j_0"
    return [
        ("job-name", make_job_name(run_id, group.group_id)),
        *([("array", array)] if site.arrays else []),
        ("nodes", str(group.topology.nodes)),
        *list_resource_options(site, group.topology),
        ("time", str(group.job_minutes)),
        *([("signal", f"B:USR1@{warning_seconds}")] if warning_seconds else []),
        *list_account_options(site),
        # sbatch would replace %A, %a and others in the path
        ("output", f"{run_dir}/{SCRIPTS_DIR}".replace("%", "%%") + f"/{log_name}.log"),
        ("open-mode", "append"),
    ]


def list_directives(group: "Group", site: Site) -> list[str]:
    """List a group's other #SBATCH lines: container, site, node; InputError for an invalid one."""
    values = list_shape_values(site, group.topology)
    filled = [render_word(line, values, "directives") for line in site.directives]
    try:
        own = [check_directive(line) for line in filled]
    except ValueError as error:
        raise InputError(f"directives: {error}") from error
    of_container = make_container_parts(site, group.kinds[0]).directives
    return [*of_container, *own, *[f"--nodelist={group.node}"] * bool(group.node)]


def get_warning_seconds(limit_minutes: int) -> int:
    """Return how many seconds before its time limit a job gets a signal; 0 for a short limit."""
    return WARNING_SECONDS if limit_minutes >= SHORTEST_WARNED_MINUTES else 0
