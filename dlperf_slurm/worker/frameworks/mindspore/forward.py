"""A model and its loss -> the functions of a forward pass, in the case's precision."""

from typing import Any, Callable, Dict, NamedTuple

import mindspore as ms
from mindspore import Tensor, nn

from dlperf_slurm.contract.case import Case

Batch = Dict[str, Tensor]

AMP_TYPES = {"amp-fp16": ms.float16}


class Forward(NamedTuple):
    """In the mode that the model is in, training or evaluation."""

    compute_logits: Callable[[Batch], Any]
    compute_loss: Callable[[Any, Batch], Tensor]


def make_forward(case: Case, definition: Any, builder: Any, model: nn.Cell) -> Forward:
    inputs = builder.INPUTS
    compute_logits_loss = builder.compute_loss

    def compute_logits(batch: Batch) -> Any:
        return model(*[batch[name] for name in inputs])

    def compute_loss(logits: Any, batch: Batch) -> Tensor:
        return compute_logits_loss(definition, logits, batch)

    if case.axes.precision not in AMP_TYPES:
        return Forward(compute_logits, compute_loss)
    amp_type = AMP_TYPES[case.axes.precision]
    return Forward(
        ms.amp.auto_mixed_precision(compute_logits, "auto", amp_type),
        ms.amp.auto_mixed_precision(compute_loss, "auto", amp_type),
    )
