"""The variables of srun(1) -> the place of this rank."""

import re
from typing import Mapping

from dlperf_slurm.worker.joining.meeting import LOOPBACK, Place
from dlperf_slurm.worker.ranks import PlacementError


def find_place(environ: Mapping[str, str]) -> Place:
    """The place of a task of srun's; raises PlacementError where srun has started none."""
    try:
        rank, size = int(environ["SLURM_PROCID"]), int(environ["SLURM_NTASKS"])
        nodes = environ["SLURM_STEP_NODELIST"]
        step = f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    except (KeyError, ValueError) as error:
        raise PlacementError(
            f'{error}: ranks = "slurm" needs the variables that srun gives to each task; is the '
            "launcher srun, and does a container keep them?"
        ) from error
    is_alone = environ.get("SLURM_STEP_NUM_NODES") == "1"
    return Place(rank, size, LOOPBACK if is_alone else find_first_host(nodes), step)


def find_first_host(nodes: str) -> str:
    """The first of a list as Slurm writes it, which is that of rank 0: "n[07-09],m1" -> "n07"."""
    first = re.match(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", nodes)
    assert first is not None, "it matches the empty text too"
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first.group())
