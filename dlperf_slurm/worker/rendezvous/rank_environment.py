"""Environment variables of srun(1) or torchrun -> rank, world size and host of rank 0."""

import re
from typing import Callable, Dict, Mapping, NamedTuple

from dlperf_slurm.worker.ranks import PlacementError
from dlperf_slurm.worker.rendezvous import SLURM, TORCHRUN

# address of rank 0 if all ranks are on one host
LOOPBACK = "127.0.0.1"


class RankEnvironment(NamedTuple):
    """Rank, world size, host of rank 0, and a text that is unique to the launch (`launch`)."""

    rank: int
    size: int
    first_host: str
    launch: str


def read_rank_environment(launcher: str, environ: Mapping[str, str]) -> RankEnvironment:
    """Read the RankEnvironment of this process from the variables that its launcher sets.

    `launcher` is SLURM or TORCHRUN. Raises PlacementError if a variable is missing or invalid.
    """
    try:
        return FINDERS[launcher](environ)
    except (KeyError, ValueError) as error:
        name = "srun" if launcher == SLURM else launcher
        raise PlacementError(
            f'{error} is missing or invalid: ranks = "{launcher}" needs the variables that {name} '
            f"sets for each rank; check that {name} is the launcher, and that a container passes "
            "these variables on"
        ) from error


def _find_slurm_place(environ: Mapping[str, str]) -> RankEnvironment:
    nodes, rank = environ["SLURM_STEP_NODELIST"], int(environ["SLURM_PROCID"])
    if rank == 0 and int(environ.get("SLURM_NODEID", "0")) > 0:
        raise PlacementError(
            f"rank 0 is on {environ.get('SLURMD_NODENAME', 'another host')}, not on the first host "
            f'of {nodes}, as ranks = "slurm" needs: remove --distribution=arbitrary and '
            'SLURM_HOSTFILE, or set ranks = "mpi" or "torchrun" in the site file'
        )
    return RankEnvironment(
        rank=rank,
        size=int(environ["SLURM_NTASKS"]),
        first_host=LOOPBACK
        if environ.get("SLURM_STEP_NUM_NODES") == "1"
        else parse_first_host(nodes),
        launch=f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}",
    )


def _find_torchrun_place(environ: Mapping[str, str]) -> RankEnvironment:
    host, port, size = (environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"))
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    restart = environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return RankEnvironment(
        rank=int(environ["RANK"]),
        size=int(size),
        first_host=LOOPBACK if environ.get("LOCAL_WORLD_SIZE") == size else host,
        launch=f"{run}.{port}.{restart}",
    )


def parse_first_host(nodes: str) -> str:
    """Return the first host of a Slurm node list, that of rank 0: "n[07-09],m1" -> "n07"."""
    first = re.match(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", nodes)
    assert first is not None, "the pattern does not match the node list"
    return re.sub(r"\[([^],-]*)[^]]*\]", r"\1", first.group())


FINDERS: Dict[str, Callable[[Mapping[str, str]], RankEnvironment]] = {
    SLURM: _find_slurm_place,
    TORCHRUN: _find_torchrun_place,
}
