"""The update rules in NumPy: gradients -> the weights that a step must lead to."""

import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional, Tuple, Union

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.update_rule import ADAMW, Rule, make_rule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.models import Network

    Arrays = Dict[str, NDArray[Any]]


class Momentum:
    """SGD with or without momentum; weight decay is added to the clipped gradient."""

    def __init__(self, rule: Rule, largest_norm: Optional[float]) -> None:
        self._rule = rule
        self._largest_norm = largest_norm
        self._velocity: "Arrays" = {}

    def update(self, weights: "Arrays", gradients: "Arrays") -> None:
        """Apply one step to float64 weights, in place."""
        rule = self._rule
        for name, gradient in clip_gradients(gradients, self._largest_norm):
            if gradient.ndim > 1:
                gradient = gradient + rule.weight_decay * weights[name]
            velocity = rule.momentum * self._velocity.get(name, 0.0) + gradient
            weights[name] -= rule.learning_rate * velocity
            self._velocity[name] = velocity


class AdamW:
    """Adam with decoupled weight decay, as defined in `Rule`."""

    def __init__(self, rule: Rule, largest_norm: Optional[float]) -> None:
        self._rule = rule
        self._largest_norm = largest_norm
        self._moments: Dict[str, Tuple[Any, Any]] = {}
        self._step = 0

    def update(self, weights: "Arrays", gradients: "Arrays") -> None:
        """Apply one step to float64 weights, in place."""
        rule = self._rule
        beta1, beta2 = rule.betas
        self._step += 1
        for name, gradient in clip_gradients(gradients, self._largest_norm):
            first, second = self._moments.get(name, (0.0, 0.0))
            first = beta1 * first + (1 - beta1) * gradient
            second = beta2 * second + (1 - beta2) * gradient**2
            self._moments[name] = first, second
            if gradient.ndim > 1:
                weights[name] *= 1 - rule.learning_rate * rule.weight_decay
            first = first / (1 - beta1**self._step)
            second = second / (1 - beta2**self._step)
            weights[name] -= rule.learning_rate * first / (second**0.5 + rule.epsilon)


def make_optimizer(case: Case, definition: "Network") -> Union[AdamW, Momentum]:
    """Return the case's optimizer, which every framework's must equal."""
    rule = make_rule(case, definition)
    largest_norm = definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
    return AdamW(rule, largest_norm) if rule.name == ADAMW else Momentum(rule, largest_norm)


def clip_gradients(
    gradients: "Arrays", largest_norm: Optional[float]
) -> Iterable[Tuple[str, "NDArray[Any]"]]:
    """Yield (name, float64 gradient), scaled to a global norm of at most `largest_norm`."""
    scale = 1.0
    if largest_norm is not None:
        scale = min(1.0, largest_norm / measure_norm(gradients.values()))
    return ((name, gradient.astype("float64") * scale) for name, gradient in gradients.items())


def measure_norm(arrays: Iterable["NDArray[Any]"]) -> float:
    """Return the Euclidean norm of all arrays together, in float64."""
    import numpy

    return math.sqrt(sum(float(numpy.square(a, dtype=numpy.float64).sum()) for a in arrays))
