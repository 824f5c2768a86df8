"""A model, its loss and an update rule -> the functions of a training step; the process group."""

import math
import os
import socket
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, communication, nn, ops

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.update_rule import ADAMW, Rule
from dlperf_slurm.worker.work import Work

Batch = Dict[str, Tensor]
AMP_TYPES = {"amp-fp16": ms.float16}
Gradients = Tuple[Tensor, ...]
SCHEDULER = "dlperf_slurm.worker.frameworks.mindspore.scheduler"
START_SECONDS = 120


class Forward(NamedTuple):
    """Logits and loss of a batch, in the model's current mode: training or evaluation."""

    compute_logits: Callable[[Batch], Any]
    compute_loss: Callable[[Any, Batch], Tensor]


def make_forward(case: Case, work: Work, model: nn.Cell) -> Forward:
    """Make functions batch -> logits and (logits, batch) -> loss, in the case's precision."""
    definition, inputs = work.definition, work.inputs
    compute_logits_loss = work.builder.compute_loss

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


class AdamW(nn.Cell):
    """AdamW with bias correction, by MindSpore's operator AdamWeightDecay.

    MindSpore's nn.AdamWeightDecay does not correct the bias, and its AdamW that does is for Ascend
    only.
    """

    def __init__(self, parameters: List[Parameter], rule: Rule) -> None:
        super().__init__()
        self.parameters = ParameterTuple(parameters)
        self.first_moments = self.parameters.clone("first_moment", init="zeros")
        self.second_moments = self.parameters.clone("second_moment", init="zeros")
        self.decays = list_decays(parameters, rule)
        self.epsilon = rule.epsilon
        # The betas in float32, as the operator uses them: in float32 1 - 0.999 is off by 1.3e-5,
        # which cancels if the bias correction uses the same value.
        self.beta1, self.beta2 = (Tensor(beta, ms.float32) for beta in rule.betas)
        self.log_beta1 = math.log(float(self.beta1.asnumpy()))
        self.log_beta2 = math.log(float(self.beta2.asnumpy()))
        self.steps = Parameter(Tensor(0.0, ms.float32), name="steps", requires_grad=False)
        self.update = ops.AdamWeightDecay()

    def construct(self, gradients: Tuple[Tensor, ...], learning_rate: Tensor) -> Tensor:
        # The operator does not correct the bias. Correcting the moments is the same as to multiply
        # the learning rate by root / (1 - beta1^step) and epsilon by root; expm1 keeps the digits
        # of 1 - beta.
        steps = ops.assign_add(self.steps, 1.0)
        root = ops.sqrt(-ops.expm1(steps * self.log_beta2))
        correction = root / -ops.expm1(steps * self.log_beta1)
        rate = learning_rate * correction
        epsilon = self.epsilon * root
        for index in range(len(self.parameters)):
            self.update(
                self.parameters[index],
                self.first_moments[index],
                self.second_moments[index],
                rate,
                self.beta1,
                self.beta2,
                epsilon,
                # the operator multiplies the decay by the learning rate that it is given
                self.decays[index] / correction,
                gradients[index],
            )
        return steps


class Momentum(nn.Cell):
    """SGD with or without momentum; MindSpore's nn.SGD would keep a state even without."""

    def __init__(self, parameters: List[Parameter], rule: Rule) -> None:
        super().__init__()
        self.parameters = ParameterTuple(parameters)
        self.decays = list_decays(parameters, rule)
        self.momentum = rule.momentum
        if rule.momentum:
            self.velocities = self.parameters.clone("velocity", init="zeros")
            self.update = ops.ApplyMomentum()
        else:
            self.update = ops.ApplyGradientDescent()

    def construct(self, gradients: Tuple[Tensor, ...], learning_rate: Tensor) -> Tensor:
        for index in range(len(self.parameters)):
            weight, change = self.parameters[index], gradients[index]
            if self.decays[index] > 0:
                change = change + self.decays[index] * weight
            if self.momentum > 0:
                velocity = self.velocities[index]
                self.update(weight, velocity, learning_rate, change, self.momentum)
            else:
                self.update(weight, learning_rate, change)
        return learning_rate


def make_optimizer(rule: Rule, parameters: List[Parameter]) -> nn.Cell:
    """Return the optimizer of a rule: a cell that takes gradients and learning rate, and updates.

    The learning rate is an argument, because a graph would not see a parameter change.
    """
    return AdamW(parameters, rule) if rule.name == ADAMW else Momentum(parameters, rule)


def list_decays(parameters: Sequence[Parameter], rule: Rule) -> Tuple[float, ...]:
    """Return each parameter's weight decay: that of the rule, or 0 for one with one dimension."""
    return tuple(rule.weight_decay if p.ndim > 1 else 0.0 for p in parameters)


class Training:
    """The training step and its parts; with compiler "graph", each is compiled as one graph.

    `accumulate` and `step` take the gradients of a step's earlier batches, as `accumulate` returned
    them, or (): they are this rank's, with the loss scale.
    """

    def __init__(
        self, case: Case, work: Work, forward: Forward, parameters: List[Parameter]
    ) -> None:
        divisor = case.world_size * case.axes.gradient_accumulation
        largest_norm = work.largest_norm
        optimizer = make_optimizer(work.rule, parameters)
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
            """Return the loss of a batch, and its scaled gradients added to `earlier` ones."""
            (_, loss), gradients = differentiate(batch)
            if len(earlier) > 0:
                gradients = tuple([one + other for one, other in zip(gradients, earlier)])
            return loss, gradients

        def backpropagate(batch: Batch, earlier: Gradients = ()) -> Tuple[Tensor, Gradients]:
            """Return this batch's loss, and unscaled gradients averaged over ranks and batches."""
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
                # MindSpore scales by largest / max(norm, largest); PyTorch adds 1e-6 to the norm
                gradients = ops.clip_by_global_norm(gradients, largest_norm)
            optimizer(gradients, learning_rate)

        def step(batch: Batch, learning_rate: Tensor, earlier: Gradients = ()) -> Tensor:
            loss, gradients = backpropagate(batch, earlier)
            if is_checked:
                # this version reads the flag back to the host
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
    """Return MindSpore's constant or dynamic loss scaler, or None if the case scales nothing."""
    if case.axes.constant_loss_scale:
        return ms.amp.StaticLossScaler(case.axes.constant_loss_scale)
    # the constants of PyTorch's GradScaler
    return ms.amp.DynamicLossScaler(2**16, 2, 2000) if case.axes.precision == "amp-fp16" else None


def join_ranks(rank_info: RankInfo) -> None:
    """Join MindSpore's process group; rank 0 starts the scheduler as a child process.

    Raises RuntimeError if MindSpore numbers the ranks unlike MPI, or the scheduler does not listen
    within START_SECONDS (120).
    """
    os.environ.update(
        MS_ROLE="MS_WORKER",
        MS_SCHED_HOST=rank_info.master_address,
        MS_SCHED_PORT=str(rank_info.master_port),
        MS_WORKER_NUM=str(rank_info.world_size),
        MS_WORKER_IP=rank_info.rank_addresses[rank_info.rank].rpartition(":")[0],
        # MindSpore numbers the ranks by this id
        MS_NODE_ID=str(rank_info.rank),
    )
    if rank_info.rank == 0:
        start_scheduler()
    await_scheduler(rank_info)
    communication.init()
    if communication.get_rank() != rank_info.rank:
        raise RuntimeError(
            f"rank {rank_info.rank} of MPI has rank {communication.get_rank()} in MindSpore; both "
            "must be equal"
        )


def meet_ranks() -> None:
    """Wait until all ranks have called this (an MPI barrier), without a timeout."""
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()


def start_scheduler() -> None:
    """Start the scheduler; it ends when all ranks have left or this process has ended."""
    subprocess.Popen(
        [sys.executable, "-m", SCHEDULER, str(os.getpid())],
        env={**os.environ, "MS_ROLE": "MS_SCHED"},
        stdin=subprocess.DEVNULL,
    )


def await_scheduler(rank_info: RankInfo) -> None:
    """Wait until the scheduler listens.

    A rank that connects too early retries in vain for half a minute. Raises RuntimeError after
    START_SECONDS (120).
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection((rank_info.master_address, rank_info.master_port), 5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    "MindSpore's scheduler did not start within "
                    f"{START_SECONDS:.0f} s, or cannot be reached at "
                    f"{rank_info.master_address}:{rank_info.master_port}: {error}"
                ) from error
        time.sleep(0.1)
