"""The numerical results of a case, which must agree between all frameworks: parity.json."""

import dataclasses
from typing import Dict, Tuple

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import Case

PARITY_FILE = "parity.json"
PROOFS_FILE = "proofs.json"


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest relative difference between computed and expected arrays of any parameter.

    `relative` is the norm of the difference divided by the norm of the expected array.
    """

    relative: float
    parameter: str


@dataclasses.dataclass(frozen=True)
class Parity:
    """The numerical results of a case, which must agree between all frameworks.

    Losses are means over the ranks, in training mode unless named evaluation; "trained" is after
    three steps. `updates` compares these steps with the model's update rule applied to the
    framework's own gradients, `ranks` the weights of all ranks with each other. `gradients` has one
    comparison with gradients of other frameworks, or none.
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
    device_name: str
    code_digest: str


@dataclasses.dataclass(frozen=True)
class Proof:
    """A comparison of `parity` that found the same work.

    A topology of two ranks in `axes` means that two ranks were compared with one.
    """

    model: str
    device_name: str
    axes: Axes
    versions: Dict[str, str]
    code_digest: str


@dataclasses.dataclass(frozen=True)
class Proofs:
    """The comparisons of one call of `parity` that found the same work: proofs.json."""

    proofs: Tuple[Proof, ...]
