"""A case and its ranks -> what updates the weights: optimizer, loss scale, gradient averaging."""

import inspect
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, ContextManager, Iterator, List, NamedTuple, Optional, Union

import torch
from torch import Tensor, distributed, nn

from dlperf_slurm.contract.axes import HOROVOD, SHARDED
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.pytorch.blocks import shard
from dlperf_slurm.worker.horovod import join_horovod
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.update_rule import ADAMW, Rule, group_by_decay

AUTOCAST_TYPES = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}
PURE_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
# DDP logs the time of every so many steps after the first ten: this many means never
NEVER = 2**31 - 1


def make_optimizer(case: Case, rule: Rule, model: nn.Module) -> torch.optim.Optimizer:
    # Fused, because with GradScaler the other implementations read the overflow flag back to the
    # host in every step. torch's fused SGD does not take sharded parameters (2.13). On CPUs it
    # leaves most 16-bit weights as they are (github.com/pytorch/pytorch/issues/191763; 2.11, 2.13).
    groups = group_by_decay(model.parameters(), rule.weight_decay)
    if rule.name == ADAMW:
        return torch.optim.AdamW(
            groups, lr=rule.learning_rate, betas=rule.betas, eps=rule.epsilon, fused=True
        )
    is_wrong_if_fused = case.device == "cpu" and case.axes.precision in PURE_TYPES
    optimizer = torch.optim.SGD(
        groups,
        lr=rule.learning_rate,
        momentum=rule.momentum,
        fused=not (is_sharded(case) or is_wrong_if_fused),
    )
    if rule.momentum:
        # By itself, fused SGD allocates an uninitialized momentum buffer in the first step, and the
        # buffer stays uninitialized if GradScaler skips that step for an overflow, as it often does
        # (seen in torch 2.13).
        for parameter in model.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


class ConstantScaler:
    """Loss scaler with GradScaler's interface, a constant scale and no overflow check.

    A scale of 1 costs nothing.
    """

    def __init__(self, scale: int) -> None:
        self._scale = scale
        self._is_unscaled = False

    def scale(self, loss: Tensor) -> Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if self._scale != 1:
            torch._foreach_mul_(list_gradients(optimizer), 1 / self._scale)
        self._is_unscaled = True

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._is_unscaled:
            self.unscale_(optimizer)
        optimizer.step()

    def update(self) -> None:
        self._is_unscaled = False

    def get_scale(self) -> float:
        return float(self._scale)


def clip_gradients(parameters: List[nn.Parameter], largest_norm: float) -> None:
    """Scale all gradients in place so that their global norm is at most `largest_norm`.

    The norm is computed in float32: torch's own is in the gradients' dtype, and float16 overflows
    above 65504.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if gradients[0].dtype == torch.float32:
        nn.utils.clip_grad_norm_(parameters, largest_norm)
        return
    norms = torch._foreach_norm(gradients, 2, torch.float32)
    norm = torch.linalg.vector_norm(torch.stack(norms))
    # torch adds the same epsilon
    scale = (largest_norm / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, scale)


def list_gradients(optimizer: torch.optim.Optimizer) -> List[Tensor]:
    groups: Any = optimizer.param_groups
    return [parameter.grad for group in groups for parameter in group["params"]]


def make_scaler(case: Case, device: torch.device) -> Union[torch.amp.GradScaler, ConstantScaler]:
    if case.axes.precision == "amp-fp16" and not case.axes.constant_loss_scale:
        return torch.amp.GradScaler(device.type)
    return ConstantScaler(case.axes.constant_loss_scale or 1)


class Distribution(NamedTuple):
    """A model prepared for data-parallel training, and how to control its gradient averaging.

    `model` takes the inputs. Call `wait` after a backward pass: gradients are then averaged over
    the ranks. A backward pass within `without_mean` keeps its gradients on the rank and adds them
    to those of the next one. Call `forget_gathered` after a forward pass without a backward pass,
    to free parameters that a sharded model has gathered.
    """

    model: nn.Module
    wait: Callable[[], None]
    without_mean: Callable[[], ContextManager[Any]]
    forget_gathered: Callable[[], None]


def is_sharded(case: Case) -> bool:
    """Return whether parameters are sharded over the ranks; a single rank keeps them whole."""
    return case.axes.gradient_sync == SHARDED and case.world_size > 1


def join_ranks(case: Case, rank_info: RankInfo, device: torch.device) -> None:
    if rank_info.world_size == 1:
        return
    if case.axes.gradient_sync == HOROVOD:
        import horovod.torch as hvd

        join_horovod(hvd, rank_info)
    else:
        join_process_group(rank_info, device)


def join_process_group(rank_info: RankInfo, device: torch.device) -> None:
    distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"tcp://{rank_info.master_address}:{rank_info.master_port}",
        rank=rank_info.rank,
        world_size=rank_info.world_size,
        device_id=device if device.type == "cuda" else None,
    )


def distribute(
    case: Case, rank_info: RankInfo, model: nn.Module, device: torch.device
) -> Distribution:
    """Prepare the model for gradient averaging by FSDP2, Horovod or DDP, or none for one rank."""
    if rank_info.world_size == 1:
        return Distribution(model, do_nothing, nullcontext, do_nothing)
    if case.axes.gradient_sync == SHARDED:
        pause = shard(model, device, choose_gathered_type(case))
        return Distribution(model, do_nothing, pause, model.reshard)
    if case.axes.gradient_sync == HOROVOD:
        mean = HorovodMean(model)
        return Distribution(model, mean.wait, mean.pause, do_nothing)
    wrapped = wrap_in_ddp(model, device)
    return Distribution(wrapped, do_nothing, wrapped.no_sync, do_nothing)


def choose_gathered_type(case: Case) -> Optional[torch.dtype]:
    """Return the type in which sharded weights are gathered, autocast's, or None for their own.

    None without autocast, and for a model with batch normalization, which takes no 16-bit weights
    beside its float32 statistics.
    """
    if load_model(case.model).HAS_BATCH_STATISTICS:
        return None
    return AUTOCAST_TYPES.get(case.axes.precision)


def do_nothing() -> None:
    """Do nothing: DDP has averaged when the backward pass returns, and a single rank need not."""


def wrap_in_ddp(model: nn.Module, device: torch.device) -> nn.parallel.DistributedDataParallel:
    ddp: Any = nn.parallel.DistributedDataParallel
    # Running statistics stay per rank, as in the other frameworks: training does not read them, and
    # broadcasting them would be one more collective in each step. The option's name is that of
    # torch 2.13.
    has_new_name = "forward_sync_buffers" in inspect.signature(ddp).parameters
    wrapped = ddp(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        **{"forward_sync_buffers" if has_new_name else "broadcast_buffers": False},
    )
    if device.type == "cuda":
        # DDP's runtime log would wait for CUDA events of the previous step in every hundredth step
        wrapped._set_ddp_runtime_logging_sample_rate(NEVER)
    return wrapped


class HorovodMean:
    """Averages each gradient by Horovod while the backward pass still computes the others.

    Horovod's DistributedOptimizer does the same, but creates a new optimizer of the same class,
    which loses the optimizer's state and the attributes that GradScaler reads from a fused
    optimizer.
    """

    def __init__(self, model: nn.Module) -> None:
        import horovod.torch as hvd

        self._horovod = hvd
        self._handles: List[int] = []
        self._is_paused = False
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(self._make_hook(name))

    def _make_hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def start_averaging(parameter: Any) -> None:
            if self._is_paused:
                return
            handle = self._horovod.allreduce_async_(
                parameter.grad, name=name, op=self._horovod.Average
            )
            self._handles.append(handle)

        return start_averaging

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Make a context in which a backward pass keeps gradients on their rank, not averaged."""
        self._is_paused = True
        yield
        self._is_paused = False

    def wait(self) -> None:
        for handle in self._handles:
            self._horovod.synchronize(handle)
        self._handles.clear()


def leave_ranks(case: Case) -> None:
    """Destroy the process group, and shut Horovod down if the case uses it."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    if case.axes.gradient_sync == HOROVOD and case.world_size > 1:
        import horovod.torch as hvd

        hvd.shutdown()
