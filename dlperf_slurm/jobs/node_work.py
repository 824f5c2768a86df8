"""A group on its site -> what each node of its jobs does before the ranks start, and how."""

import re
from collections.abc import Sequence
from typing import Optional

from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import DALI, FOLDER
from dlperf_slurm.contract.nodes import NodeChecks, NodeWork
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.jobs.grouping import Group

# what sbatch was asked for, for each rank: srun would heed it for the one process on a node
_OF_RANKS = ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND")
_VARIABLE = re.compile(r"\$(\w+)", re.ASCII)


def make_node_work(group: Group, site: Site) -> Optional[NodeWork]:
    """What the nodes of a group do, for a site that is settled for it; None for nothing."""
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
    """The data sets whose files a group reads, by name."""
    return sorted(
        {task.case.dataset for task in group.array_tasks if task.case.axes.data in (FOLDER, DALI)}
    )


def list_data_folders(group: Group, site: Site) -> list[str]:
    """The folders of the data that a group reads, and of its copies, as words of `${NAME}`."""
    folders = []
    for name in list_dataset_names(group):
        stage_to = site.find_dataset(name).stage_to
        if stage_to is None:
            folders.append(site.find_dataset_path(name).replace("${", "$${"))
        else:
            folders.append(_VARIABLE.sub(r"${\1}", stage_to))
    return sorted(folders)


def list_starting_words(site: Site, topology: Topology) -> Sequence[str]:
    """The words before a program that start it once on each node, with all that the job has there.

    Ranks may be started by something else; where there is Slurm, there is srun.
    """
    if site.scheduler == "local":
        return []
    return [
        "env",
        *(word for name in _OF_RANKS for word in ("-u", name)),
        "srun",
        f"--nodes={topology.nodes}",
        f"--ntasks={topology.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={site.cpus_per_rank}",
        "--mpi=none",
        # each node tells for itself
        "--kill-on-bad-exit=0",
    ]
