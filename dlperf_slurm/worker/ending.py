"""How a rank ends that has done its work: as Python does, or before a framework's group is left."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlperf_slurm.worker.joining.worlds import RankWorld

# set by an adapter whose framework may crash as Python ends
is_at_once = False


def end_at_once(world: "RankWorld") -> None:
    """End this process with exit code 0, in order for MPI and the other ranks.

    Nothing else of what is registered for its end is called.
    """
    world.leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
