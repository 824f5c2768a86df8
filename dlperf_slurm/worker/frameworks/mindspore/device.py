"""A rank's device: its clock, and the weights copied to it and back."""

from typing import Any, Dict, Iterable, List, Tuple

import mindspore as ms
import numpy
from mindspore import Parameter, Tensor, nn

# as MindSpore calls them in its normalizations and embeddings
CANONICAL_NAMES = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}


class CudaEventClock:
    """Boundaries in the device's own time line; a mark queues an event and does not wait."""

    name = "cuda_event"

    def __init__(self, boundaries: int) -> None:
        self._events = [ms.runtime.Event(enable_timing=True) for _ in range(boundaries)]

    def mark(self, index: int) -> None:
        self._events[index].record()

    def read_step_seconds(self) -> List[float]:
        """Resolution is about 0.5 microseconds (CUDA, cudaEventElapsedTime, in milliseconds)."""
        pairs = zip(self._events, self._events[1:])
        return [start.elapsed_time(end) / 1000.0 for start, end in pairs]


def find_parameters(model: nn.Cell) -> Dict[str, Parameter]:
    """What is trained, by canonical name; a tied weight once, by its first name."""
    found = {}
    for path, parameter in model.parameters_and_names():
        module, _, name = path.rpartition(".")
        if parameter.requires_grad:
            found[f"{module}.{CANONICAL_NAMES.get(name, name)}"] = parameter
    return found


def load_weights(parameters: Dict[str, Parameter], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy NumPy arrays into the parameters; MindSpore's layouts are the definition's."""
    missing = dict(parameters)
    for name, values in weights:
        missing.pop(name).set_data(Tensor(values))
    if missing:
        raise ValueError(f"no weights for {', '.join(missing)}")


def to_numpy(tensor: Tensor) -> Any:
    """A float32 copy in host memory."""
    return numpy.array(tensor.asnumpy(), numpy.float32)


def count_parameters(parameters: Dict[str, Parameter]) -> int:
    """Trainable scalars."""
    return sum(parameter.size for parameter in parameters.values())
