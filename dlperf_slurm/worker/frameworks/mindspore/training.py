"""A forward pass and an optimizer -> the functions that a step consists of."""

from typing import Any, List, Tuple

import mindspore as ms
from mindspore import Parameter, Tensor, ops

from dlperf_slurm.contract import Case
from dlperf_slurm.worker.frameworks.mindspore.forward import Batch, Forward

Gradients = Tuple[Tensor, ...]


class Training:
    """A step and its parts; with the compiler `graph`, each is one graph."""

    def __init__(
        self,
        case: Case,
        definition: Any,
        builder: Any,
        forward: Forward,
        parameters: List[Parameter],
    ) -> None:
        world_size = case.world_size
        largest_norm = definition.CLIP_GLOBAL_NORM if case.clip_global_norm else None
        optimizer = builder.make_optimizer(definition, parameters, case.global_batch_size)
        # PyTorch's numbers
        scaler = ms.amp.DynamicLossScaler(2**16, 2, 2000)
        is_scaled = case.precision == "amp-fp16"
        all_reduce = ops.AllReduce() if world_size > 1 else None
        compute_logits, compute_loss = forward

        def scale_loss(batch: Batch) -> Tuple[Tensor, Tensor]:
            loss = compute_loss(compute_logits(batch), batch)
            return scaler.scale(loss) if is_scaled else loss, loss

        differentiate = ms.value_and_grad(scale_loss, None, parameters, has_aux=True)

        def backpropagate(batch: Batch) -> Tuple[Tensor, Gradients]:
            """The loss, and gradients averaged over the ranks, without the scale."""
            (_, loss), gradients = differentiate(batch)
            if all_reduce is not None:
                gradients = tuple([all_reduce(gradient) / world_size for gradient in gradients])
            if is_scaled:
                gradients = scaler.unscale(gradients)
            return loss, gradients

        def update(gradients: Gradients) -> None:
            if largest_norm is not None:
                # MindSpore scales by largest / max(norm, largest); torch adds 1e-6 to the norm.
                gradients = ops.clip_by_global_norm(gradients, largest_norm)
            optimizer(gradients)

        def step(batch: Batch) -> Tensor:
            loss, gradients = backpropagate(batch)
            if is_scaled:
                # read back to the host, in this version
                is_finite = ms.amp.all_finite(gradients)
                if is_finite:
                    update(gradients)
                scaler.adjust(is_finite)
            else:
                update(gradients)
            return loss

        is_graph = case.compiler == "graph"
        self.backpropagate = ms.jit(backpropagate) if is_graph else backpropagate
        self.step = ms.jit(step) if is_graph else step
