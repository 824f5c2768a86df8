"""The variables of torchrun (torch.distributed.run) -> the place of this rank."""

from typing import Mapping

from dlperf_slurm.worker.joining.meeting import LOOPBACK, Place
from dlperf_slurm.worker.ranks import PlacementError


def find_place(environ: Mapping[str, str]) -> Place:
    """The place of a process of torchrun's; raises PlacementError where it has started none."""
    try:
        rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        host, port = environ["MASTER_ADDR"], environ["MASTER_PORT"]
    except (KeyError, ValueError) as error:
        raise PlacementError(
            f'{error}: ranks = "torchrun" needs the variables that torchrun gives to each process; '
            "is it the launcher, and does a container keep them?"
        ) from error
    is_alone = environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"]
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    restart = environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return Place(rank, size, LOOPBACK if is_alone else host, f"{run}.{port}.{restart}")
