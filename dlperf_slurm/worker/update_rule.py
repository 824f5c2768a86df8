"""A case -> the update rule of its optimizer with its constants, the same in every framework."""

from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Tuple

from dlperf_slurm.contract.axes import DEFAULT_OPTIMIZER
from dlperf_slurm.contract.case import Case

if TYPE_CHECKING:
    from dlperf_slurm.worker.models import Network

SGD = "sgd"
MOMENTUM = "momentum"
ADAMW = "adamw"


class Rule(NamedTuple):
    """How a gradient changes a weight; constants that the rule does not use are 0.

    sgd, momentum: v = momentum * v + gradient + weight_decay * weight; weight -= learning_rate * v.
    adamw: Adam with bias correction and decoupled weight decay (Loshchilov and Hutter 2019);
    epsilon is added to the root of the corrected second moment. Weight decay applies to parameters
    with more than one dimension.
    """

    name: str
    learning_rate: float
    weight_decay: float
    momentum: float = 0.0
    betas: Tuple[float, float] = (0.0, 0.0)
    epsilon: float = 0.0


# For a model that was published with another optimizer; the weight decay is the model's. Learning
# rates were tried over a hundred steps on one batch: with each, the loss of ResNet-50 and of BERT
# falls. The other constants are those of whichever of the two was published with the rule.
_RULES_OF_OTHERS = {
    SGD: Rule(SGD, learning_rate=1e-2, weight_decay=0.0),
    MOMENTUM: Rule(MOMENTUM, learning_rate=1e-2, weight_decay=0.0, momentum=0.875),
    ADAMW: Rule(ADAMW, learning_rate=1e-3, weight_decay=0.0, betas=(0.9, 0.999), epsilon=1e-6),
}


def make_rule(case: Case, definition: "Network") -> Rule:
    """Return the model's own update rule, or the one that the case names.

    The case's learning rate, if set, replaces that of the rule.
    """
    rule = definition.make_rule(case.global_batch_size)
    if case.axes.optimizer not in (DEFAULT_OPTIMIZER, rule.name):
        rule = _RULES_OF_OTHERS[case.axes.optimizer]._replace(
            weight_decay=definition.RULE.weight_decay
        )
    if case.training.learning_rate:
        rule = rule._replace(learning_rate=case.training.learning_rate)
    return rule


def group_by_decay(parameters: Iterable[Any], weight_decay: float) -> List[Dict[str, Any]]:
    """Return optimizer parameter groups: with weight decay for matrices and kernels, else without.

    A group is {"params": ..., "weight_decay": ...}. Biases and normalization weights, which have
    one dimension, do not decay.
    """
    parameters = list(parameters)
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
