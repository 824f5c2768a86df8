"""A forward pass and an optimizer -> the functions that a step consists of."""

from typing import Any, List, Tuple

import mindspore as ms
from mindspore import Parameter, Tensor, ops

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks.mindspore.forward import Batch, Forward
from dlperf_slurm.worker.frameworks.mindspore.optimizers import make_optimizer
from dlperf_slurm.worker.update_rule import make_rule

Gradients = Tuple[Tensor, ...]


class Training:
    """A step and its parts; with the compiler `graph`, each is one graph.

    `accumulate` and `step` take the gradients of a step's earlier batches, as `accumulate` returns
    them; () where there are none. These are this rank's, with the loss scale.
    """

    def __init__(
        self, case: Case, definition: Any, forward: Forward, parameters: List[Parameter]
    ) -> None:
        divisor = case.world_size * case.axes.gradient_accumulation
        largest_norm = definition.CLIP_GLOBAL_NORM if case.axes.clip_global_norm else None
        optimizer = make_optimizer(make_rule(case, definition), parameters)
        scaler = make_scaler(case)
        is_scaled = scaler is not None
        is_checked = isinstance(scaler, ms.amp.DynamicLossScaler)
        all_reduce = ops.AllReduce() if case.world_size > 1 else None
        compute_logits, compute_loss = forward

        def scale_loss(batch: Batch) -> Tuple[Tensor, Tensor]:
            loss = compute_loss(compute_logits(batch), batch)
            return scaler.scale(loss) if is_scaled else loss, loss

        differentiate = ms.value_and_grad(scale_loss, None, parameters, has_aux=True)

        def accumulate(batch: Batch, earlier: Gradients = ()) -> Tuple[Tensor, Gradients]:
            """The loss, and the sum of this batch's gradients and the earlier ones."""
            (_, loss), gradients = differentiate(batch)
            if len(earlier) > 0:
                gradients = tuple([one + other for one, other in zip(gradients, earlier)])
            return loss, gradients

        def backpropagate(batch: Batch, earlier: Gradients = ()) -> Tuple[Tensor, Gradients]:
            """The loss, and gradients averaged over batches and ranks, without the scale."""
            loss, gradients = accumulate(batch, earlier)
            if all_reduce is not None:
                gradients = tuple([all_reduce(gradient) for gradient in gradients])
            if divisor > 1:
                gradients = tuple([gradient / divisor for gradient in gradients])
            if is_scaled:
                gradients = scaler.unscale(gradients)
            return loss, gradients

        def update(gradients: Gradients, learning_rate: Tensor) -> None:
            if largest_norm is not None:
                # MindSpore scales by largest / max(norm, largest); torch adds 1e-6 to the norm.
                gradients = ops.clip_by_global_norm(gradients, largest_norm)
            optimizer(gradients, learning_rate)

        def step(batch: Batch, learning_rate: Tensor, earlier: Gradients = ()) -> Tensor:
            loss, gradients = backpropagate(batch, earlier)
            if is_checked:
                # read back to the host, in this version
                is_finite = ms.amp.all_finite(gradients)
                if is_finite:
                    update(gradients, learning_rate)
                scaler.adjust(is_finite)
            else:
                update(gradients, learning_rate)
            return loss

        is_graph = case.axes.compiler == "graph"
        self.accumulate = ms.jit(accumulate) if is_graph else accumulate
        self.backpropagate = ms.jit(backpropagate) if is_graph else backpropagate
        self.step = ms.jit(step) if is_graph else step


def make_scaler(case: Case) -> Any:
    """None where nothing is scaled."""
    if case.axes.constant_loss_scale:
        return ms.amp.StaticLossScaler(case.axes.constant_loss_scale)
    # PyTorch's numbers
    return ms.amp.DynamicLossScaler(2**16, 2, 2000) if case.axes.precision == "amp-fp16" else None
