"""The update rules of the models in NumPy: gradients -> the weights that a step must lead to."""

import math
from typing import TYPE_CHECKING, Any, Dict, Iterable, Optional, Tuple, Union

from dlperf_slurm.worker.models import bert, resnet50

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Dict[str, NDArray[Any]]


class Momentum:
    """SGD with momentum; weight decay is added to the clipped gradient."""

    def __init__(
        self, definition: resnet50.Definition, global_batch_size: int, is_clipped: bool
    ) -> None:
        self._definition = definition
        self._learning_rate = definition.learning_rate(global_batch_size)
        self._largest_norm = definition.CLIP_GLOBAL_NORM if is_clipped else None
        self._velocity: "Arrays" = {}

    def update(self, weights: "Arrays", gradients: "Arrays") -> None:
        """Change float64 weights in place."""
        rule = self._definition
        for name, gradient in clip_gradients(gradients, self._largest_norm):
            if gradient.ndim > 1:
                gradient = gradient + rule.WEIGHT_DECAY * weights[name]
            velocity = rule.MOMENTUM * self._velocity.get(name, 0.0) + gradient
            weights[name] -= self._learning_rate * velocity
            self._velocity[name] = velocity


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019) and bias correction.

    Epsilon is added to the root of the corrected second moment.
    """

    def __init__(self, definition: bert.Definition, is_clipped: bool) -> None:
        self._definition = definition
        self._largest_norm = definition.CLIP_GLOBAL_NORM if is_clipped else None
        self._moments: Dict[str, Tuple[Any, Any]] = {}
        self._step = 0

    def update(self, weights: "Arrays", gradients: "Arrays") -> None:
        """Change float64 weights in place."""
        rule = self._definition
        self._step += 1
        for name, gradient in clip_gradients(gradients, self._largest_norm):
            first, second = self._moments.get(name, (0.0, 0.0))
            first = rule.BETA1 * first + (1 - rule.BETA1) * gradient
            second = rule.BETA2 * second + (1 - rule.BETA2) * gradient**2
            self._moments[name] = first, second
            if gradient.ndim > 1:
                weights[name] *= 1 - rule.LEARNING_RATE * rule.WEIGHT_DECAY
            first = first / (1 - rule.BETA1**self._step)
            second = second / (1 - rule.BETA2**self._step)
            weights[name] -= rule.LEARNING_RATE * first / (second**0.5 + rule.ADAM_EPSILON)


def make_optimizer(
    definition: Union[bert.Definition, resnet50.Definition],
    global_batch_size: int,
    is_clipped: bool,
) -> Union[AdamW, Momentum]:
    """The model's own optimizer, as all frameworks must have it."""
    if isinstance(definition, bert.Definition):
        return AdamW(definition, is_clipped)
    return Momentum(definition, global_batch_size, is_clipped)


def clip_gradients(
    gradients: "Arrays", largest_norm: Optional[float]
) -> Iterable[Tuple[str, "NDArray[Any]"]]:
    """Gradients in float64, all scaled alike to have `largest_norm` if they have more."""
    scale = 1.0
    if largest_norm is not None:
        scale = min(1.0, largest_norm / measure_norm(gradients.values()))
    return ((name, gradient.astype("float64") * scale) for name, gradient in gradients.items())


def measure_norm(arrays: Iterable["NDArray[Any]"]) -> float:
    """Euclidean norm of all arrays together, in float64."""
    import numpy

    return math.sqrt(sum(float(numpy.square(a, dtype=numpy.float64).sum()) for a in arrays))
