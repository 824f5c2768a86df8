"""The update rules in NumPy: gradients -> the weights that a step must lead to.

Computed in float64. Between steps, weights and optimizer state have the precision in which the case
stores them.
"""

import math
from typing import Any, Dict, Iterable, Optional, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Array, Arrays
from dlperf_slurm.worker.models import Network
from dlperf_slurm.worker.update_rule import ADAMW, Rule, make_rule
from dlperf_slurm.worker.weights import round_as_stored


class ReferenceOptimizer:
    """The update rule of a case, as `Rule` defines it."""

    def __init__(self, rule: Rule, largest_norm: Optional[float], precision: str) -> None:
        self.largest_norm = largest_norm
        self._rule = rule
        self._precision = precision
        # velocity, or both moments
        self._state: Dict[str, Tuple[Any, ...]] = {}
        self._step = 0

    def update(self, weights: Arrays, gradients: Arrays) -> None:
        """Apply one step to float64 weights: replace the arrays in the dict `weights`."""
        self._step += 1
        compute = self._compute_adamw if self._rule.name == ADAMW else self._compute_momentum
        for name, gradient in clip_gradients(gradients, self.largest_norm):
            decay = self._rule.weight_decay if gradient.ndim > 1 else 0.0
            weight, *state = compute(weights[name], gradient, decay, *self._state.get(name, ()))
            weights[name] = round_as_stored(weight, self._precision)
            self._state[name] = tuple(round_as_stored(one, self._precision) for one in state)

    def _compute_momentum(
        self, weight: Any, gradient: Any, decay: float, velocity: Any = 0.0
    ) -> Tuple[Any, ...]:
        velocity = self._rule.momentum * velocity + (gradient + decay * weight)
        return weight - self._rule.learning_rate * velocity, velocity

    def _compute_adamw(
        self, weight: Any, gradient: Any, decay: float, first: Any = 0.0, second: Any = 0.0
    ) -> Tuple[Any, ...]:
        rate, (beta1, beta2) = self._rule.learning_rate, self._rule.betas
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        deviation = (second / (1 - beta2**self._step)) ** 0.5
        step = first / (1 - beta1**self._step) / (deviation + self._rule.epsilon)
        return weight * (1 - rate * decay) - rate * step, first, second


def make_optimizer(case: Case, definition: Network) -> ReferenceOptimizer:
    """Return the case's optimizer in NumPy, with whose updates those of frameworks are compared."""
    largest_norm = definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
    return ReferenceOptimizer(make_rule(case, definition), largest_norm, case.axes.precision)


def clip_gradients(gradients: Arrays, largest_norm: Optional[float]) -> Iterable[Tuple[str, Array]]:
    """Yield (name, float64 gradient), scaled to a global norm of at most `largest_norm`."""
    scale = 1.0
    if largest_norm is not None:
        scale = min(1.0, largest_norm / measure_norm(gradients.values()))
    return ((name, gradient.astype("float64") * scale) for name, gradient in gradients.items())


def measure_norm(arrays: Iterable[Array]) -> float:
    """Return the Euclidean norm of all arrays together, in float64."""
    import numpy

    return math.sqrt(sum(float(numpy.square(a, dtype=numpy.float64).sum()) for a in arrays))
