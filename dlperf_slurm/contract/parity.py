"""What a case computes, whatever its speed: to be the same in every framework."""

import dataclasses
from typing import Dict, Tuple

from dlperf_slurm.contract.case import Case

PARITY_FILE = "parity.json"


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of arrays from those expected, for the parameter where it is largest.

    `relative` is the norm of the difference over that of what was expected.
    """

    relative: float
    parameter: str


@dataclasses.dataclass(frozen=True)
class Parity:
    """What a case computes, whatever its speed: to be the same in every framework.

    Losses are means over the ranks, in training mode but where it says evaluation; "trained" is
    after three steps. `updates` compares what these steps did with the model's update rule on the
    framework's own gradients, `ranks` the weights of all ranks with each other. `gradients` holds
    one comparison with a reference, or none.
    """

    case: Case
    parameter_count: int
    initial_loss: float
    initial_evaluation_loss: float
    gradient_norm: float
    trained_loss: float
    trained_evaluation_loss: float
    updates: Difference
    ranks: Difference
    gradients: Tuple[Difference, ...]
    versions: Dict[str, str]
