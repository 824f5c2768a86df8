"""Ranks -> a model whose gradients become their mean: DataParallel."""

import os
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, NamedTuple

import paddle
from paddle import distributed

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import Placement


class Distribution(NamedTuple):
    """After a backward pass of `model`, gradients are the mean's.

    Those of one within `without_mean` are kept on their rank, for the next one to send.
    """

    model: Any
    without_mean: Callable[[], ContextManager[Any]]


def distribute(placement: Placement, model: Any) -> Distribution:
    if placement.world_size == 1:
        return Distribution(model, nullcontext)
    wrapped = paddle.DataParallel(model)
    return Distribution(wrapped, wrapped.no_sync)


def join_process_group(case: Case, placement: Placement) -> None:
    os.environ.update(
        PADDLE_TRAINER_ID=str(placement.rank),
        PADDLE_TRAINERS_NUM=str(placement.world_size),
        PADDLE_TRAINER_ENDPOINTS=",".join(placement.rank_addresses),
        PADDLE_CURRENT_ENDPOINT=placement.rank_addresses[placement.rank],
        # These two go before the endpoints, and a site may have set them.
        MASTER_ADDR=placement.master_address,
        MASTER_PORT=str(placement.master_port),
        PADDLE_DISTRI_BACKEND="nccl" if case.device == "cuda" else "gloo",
    )
    distributed.init_parallel_env()
