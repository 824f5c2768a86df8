"""The update rules in NumPy: gradients -> the weights that a step must lead to.

Computed in float64. Between steps, weights and optimizer state have the precision in which the case
stores them.
"""

import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional, Tuple, Union

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.update_rule import ADAMW, Rule, make_rule
from dlperf_slurm.worker.weights import round_as_stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.models import Network

    Arrays = Dict[str, NDArray[Any]]


class Momentum:
    """SGD with or without momentum; weight decay is added to the clipped gradient."""

    def __init__(self, rule: Rule, largest_norm: Optional[float], precision: str) -> None:
        self._rule = rule
        self.largest_norm = largest_norm
        self._precision = precision
        self._velocity: "Arrays" = {}

    def update(self, weights: "Arrays", gradients: "Arrays") -> None:
        """Apply one step to float64 weights: replace the arrays in the dict `weights`."""
        rule = self._rule
        for name, gradient in clip_gradients(gradients, self.largest_norm):
            if gradient.ndim > 1:
                gradient = gradient + rule.weight_decay * weights[name]
            velocity = rule.momentum * self._velocity.get(name, 0.0) + gradient
            weight = weights[name] - rule.learning_rate * velocity
            weights[name] = round_as_stored(weight, self._precision)
            self._velocity[name] = round_as_stored(velocity, self._precision)


class AdamW:
    """Adam with decoupled weight decay, as defined in `Rule`."""

    def __init__(self, rule: Rule, largest_norm: Optional[float], precision: str) -> None:
        self._rule = rule
        self.largest_norm = largest_norm
        self._precision = precision
        self._moments: Dict[str, Tuple[Any, Any]] = {}
        self._step = 0

    def update(self, weights: "Arrays", gradients: "Arrays") -> None:
        """Apply one step to float64 weights: replace the arrays in the dict `weights`."""
        rule = self._rule
        beta1, beta2 = rule.betas
        self._step += 1
        for name, gradient in clip_gradients(gradients, self.largest_norm):
            first, second = self._moments.get(name, (0.0, 0.0))
            first = beta1 * first + (1 - beta1) * gradient
            second = beta2 * second + (1 - beta2) * gradient**2
            self._moments[name] = (
                round_as_stored(first, self._precision),
                round_as_stored(second, self._precision),
            )
            weight = weights[name]
            if gradient.ndim > 1:
                weight = weight * (1 - rule.learning_rate * rule.weight_decay)
            first = first / (1 - beta1**self._step)
            second = second / (1 - beta2**self._step)
            weight = weight - rule.learning_rate * first / (second**0.5 + rule.epsilon)
            weights[name] = round_as_stored(weight, self._precision)


def make_optimizer(case: Case, definition: "Network") -> Union[AdamW, Momentum]:
    """Return the case's optimizer, which every framework's must equal."""
    rule = make_rule(case, definition)
    largest_norm = definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
    optimizer = AdamW if rule.name == ADAMW else Momentum
    return optimizer(rule, largest_norm, case.axes.precision)


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
