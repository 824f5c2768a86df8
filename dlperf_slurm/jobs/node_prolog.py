"""A group on its site -> the setup, checks and data copies of each node before the ranks start."""

import re
from collections.abc import Sequence
from typing import Optional

from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import DALI, FOLDER
from dlperf_slurm.contract.nodes import NodeChecks, NodeWork
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.grouping import Group

# per-task requests of sbatch, which srun would apply to the single process per node
_OF_RANKS = ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND")
_VARIABLE = re.compile(r"\$(\w+)", re.ASCII)


def make_node_work(group: Group, site: Site) -> Optional[NodeWork]:
    """Return the setup, checks and data copies that each node of a group does; None for none.

    They precede the ranks of the job. `site` is resolved for the group's kind of job.
    """
    copies = {
        site.find_dataset_path(name): stage_to
        for name in list_dataset_names(group)
        if (stage_to := site.find_dataset(name).stage_to) is not None
    }
    work = NodeWork(
        setup=site.node.setup,
        check=NodeChecks(**site.node.check.model_dump()),
        timeout_seconds=site.node.timeout_seconds,
        copies=copies,
    )
    return work if work.setup or copies or work.check != NodeChecks() else None


def list_dataset_names(group: Group) -> list[str]:
    """List the names of the data sets whose files an array job reads."""
    return sorted(
        {task.case.dataset for task in group.array_tasks if task.case.axes.data in (FOLDER, DALI)}
    )


def list_data_folders(group: Group, site: Site) -> list[str]:
    """List the folders of an array job's data sets, or of their copies on the node.

    The job expands `${NAME}` in them.
    """
    folders = []
    for name in list_dataset_names(group):
        stage_to = site.find_dataset(name).stage_to
        if stage_to is None:
            folders.append(site.find_dataset_path(name).replace("${", "$${"))
        else:
            folders.append(_VARIABLE.sub(r"${\1}", stage_to))
    return sorted(folders)


def list_starting_words(site: Site, topology: Topology) -> Sequence[str]:
    """Return the words that start a program once per node, such as those of srun.

    They precede its command line. On Slurm, srun gets all resources of the node, also if another
    launcher starts the ranks; [] for the local scheduler.
    """
    if site.scheduler == "local":
        return []
    # a step of one task gets one GPU of a job that asks for GPUs per task, unless it asks for more
    is_by_task = any(line.startswith("--gpus-per-task") for line in site.directives)
    return [
        "env",
        *(word for name in _OF_RANKS for word in ("-u", name)),
        "srun",
        f"--nodes={topology.nodes}",
        f"--ntasks={topology.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={site.cpus_per_rank}",
        *([f"--gres=gpu:{topology.devices_per_node}"] if is_by_task else []),
        "--mpi=none",
        # a failed node must not end the checks of the others
        "--kill-on-bad-exit=0",
    ]
