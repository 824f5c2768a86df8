"""A case and its ranks -> what updates the weights: optimizer, loss scale, gradient averaging."""

import os
from functools import partial
from typing import Any, Dict, List, Optional, Union

import paddle
from paddle import distributed, nn
from paddle.distributed.fleet.utils import recompute

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.paddle.device import list_trained
from dlperf_slurm.worker.update_rule import ADAMW, Rule


def make_optimizer(
    rule: Rule, model: nn.Layer, largest_norm: Optional[float]
) -> paddle.optimizer.Optimizer:
    """Return an optimizer that clips gradients to `largest_norm`, if given, then adds weight decay.

    `largest_norm` is the global norm. Weight decay is for matrices and kernels, by SGD through the
    parameters' `regularizer`, which is set here. Without parameter groups: Paddle would clip each
    group by its own norm.
    """
    # Paddle scales by largest / max(norm, largest); PyTorch adds 1e-6 to the norm
    clip = nn.ClipGradByGlobalNorm(largest_norm) if largest_norm is not None else None
    options: Any = {"parameters": model.parameters(), "grad_clip": clip}
    if rule.name == ADAMW:
        # Paddle's own names of matrices and kernels: biases and normalization weights do not decay
        decaying = {p.name for p in list_trained(model).values() if p.ndim > 1}
        return paddle.optimizer.AdamW(
            rule.learning_rate,
            *rule.betas,
            rule.epsilon,
            weight_decay=rule.weight_decay,
            apply_decay_param_fun=decaying.__contains__,
            **options,
        )
    for parameter in list_trained(model).values():
        if parameter.ndim > 1:
            parameter.regularizer = paddle.regularizer.L2Decay(rule.weight_decay)
    if rule.momentum:
        return paddle.optimizer.Momentum(rule.learning_rate, rule.momentum, **options)
    return paddle.optimizer.SGD(rule.learning_rate, **options)


class ConstantScaler:
    """Loss scaler with GradScaler's interface, a constant scale and no overflow check.

    A scale of 1 costs nothing.
    """

    def __init__(self, scale: int, parameters: List[paddle.Tensor]) -> None:
        self._scale = scale
        self._parameters = parameters

    def scale(self, loss: paddle.Tensor) -> paddle.Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def step(self, optimizer: paddle.optimizer.Optimizer) -> None:
        if self._scale != 1:
            with paddle.no_grad():
                for parameter in self._parameters:
                    parameter.grad.scale_(1 / self._scale)
        optimizer.step()

    def update(self) -> None:
        """Do nothing: the scale is constant."""

    def state_dict(self) -> Dict[str, float]:
        return {"scale": float(self._scale)}


def make_scaler(
    case: Case, parameters: List[paddle.Tensor]
) -> Union[paddle.amp.GradScaler, ConstantScaler]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        check_overflow_message()
        # GradScaler reads the overflow flag back to the host in every step
        return paddle.amp.GradScaler()
    return ConstantScaler(case.axes.constant_loss_scale or 1, parameters)


def check_overflow_message() -> None:
    """Check that Paddle's GradScaler can report an overflow.

    At an overflow GradScaler (3.3) prints float() of its scale, an array with one element, for
    which NumPy 2.4 raises TypeError. Raises RuntimeError with a remedy.
    """
    try:
        float(paddle.ones([1]))
    except TypeError as error:
        raise RuntimeError(
            "Paddle's GradScaler fails at its first overflow with NumPy 2.4 or newer: install "
            "numpy<2.4, or use precision 'amp-bf16', or loss_scale = 128"
        ) from error


def checkpoint_blocks(model: nn.Layer) -> None:
    """Enable activation checkpointing: recompute each block in the backward pass.

    Blocks are the members of the model's LayerList and Sequential children.
    """
    for child in model.children():
        if isinstance(child, (nn.LayerList, nn.Sequential)):
            for block in child:
                block.forward = partial(recompute, block.forward, use_reentrant=False)


def join_process_group(case: Case, rank_info: RankInfo) -> None:
    os.environ.update(
        PADDLE_TRAINER_ID=str(rank_info.rank),
        PADDLE_TRAINERS_NUM=str(rank_info.world_size),
        PADDLE_TRAINER_ENDPOINTS=",".join(rank_info.rank_addresses),
        PADDLE_CURRENT_ENDPOINT=rank_info.rank_addresses[rank_info.rank],
        # These two take precedence over the endpoints, and the site may have set them.
        MASTER_ADDR=rank_info.master_address,
        MASTER_PORT=str(rank_info.master_port),
        PADDLE_DISTRI_BACKEND="nccl" if case.device == "cuda" else "gloo",
    )
    distributed.init_parallel_env()


def compile_graph(part: Any, compiler: str) -> Any:
    """Return a layer, changed in place, or a function compiled to a static graph by `compiler`.

    That is "to_static", or "cinn" for its compiler CINN. Raises RuntimeError for "cinn" in a build
    of Paddle without CINN.
    """
    if compiler == "cinn" and not paddle.is_compiled_with_cinn():
        raise RuntimeError("this build of Paddle has no CINN; use compiler 'to_static'")
    # `backend` defaults to CINN
    backend = "CINN" if compiler == "cinn" else None
    return paddle.jit.to_static(part, full_graph=True, backend=backend)
