"""A case -> the update rule of its optimizer with its constants, the same in every framework."""

from typing import Any, NamedTuple, Tuple, Union

from dlperf_slurm.contract.axes import DEFAULT_OPTIMIZER
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.models import bert, resnet50

SGD = "sgd"
MOMENTUM = "momentum"
ADAMW = "adamw"

# For a model that was published with another optimizer; tried over a hundred steps on one batch,
# where each lets the loss fall in both models.
_LEARNING_RATES = {SGD: 1e-2, MOMENTUM: 1e-2, ADAMW: 1e-3}


class Rule(NamedTuple):
    """How a gradient changes a weight; what a rule does not use is 0.

    sgd, momentum: v = momentum * v + gradient + weight_decay * weight; weight -= learning_rate * v.
    adamw: Adam with bias correction and decoupled weight decay (Loshchilov and Hutter 2019);
    epsilon is added to the root of the corrected second moment. Weight decay is for parameters of
    more than one dimension.
    """

    name: str
    learning_rate: float
    weight_decay: float
    momentum: float = 0.0
    betas: Tuple[float, float] = (0.0, 0.0)
    epsilon: float = 0.0


def make_rule(case: Case, definition: Union[bert.Definition, resnet50.Definition]) -> Rule:
    """The model's own optimizer, or the one that the case names; its own learning rate too.

    Constants that only another model's recipe has are taken from there.
    """
    own = MOMENTUM if isinstance(definition, resnet50.Definition) else ADAMW
    name = own if case.optimizer == DEFAULT_OPTIMIZER else case.optimizer
    learning_rate = case.training.learning_rate or _choose_learning_rate(
        case, definition, is_own=name == own
    )
    constants: Any = definition
    if name == ADAMW:
        return Rule(
            name=name,
            learning_rate=learning_rate,
            weight_decay=constants.WEIGHT_DECAY,
            betas=(bert.Definition.BETA1, bert.Definition.BETA2),
            epsilon=bert.Definition.ADAM_EPSILON,
        )
    return Rule(
        name=name,
        learning_rate=learning_rate,
        weight_decay=constants.WEIGHT_DECAY,
        momentum=resnet50.Definition.MOMENTUM if name == MOMENTUM else 0.0,
    )


def _choose_learning_rate(
    case: Case, definition: Union[bert.Definition, resnet50.Definition], is_own: bool
) -> float:
    if not is_own:
        return _LEARNING_RATES[case.optimizer]
    if isinstance(definition, resnet50.Definition):
        return definition.learning_rate(case.global_batch_size)
    return definition.LEARNING_RATE
