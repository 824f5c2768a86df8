"""A case on this rank -> a model and its batch on the device, ready to train or to infer."""

import os
from typing import Any, Dict, Iterator, Sequence

import torch

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.clock import EventClock, HostClock
from dlperf_slurm.worker.datasets import Dataset
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.pytorch.attention import NamesOfAttention
from dlperf_slurm.worker.frameworks.pytorch.blocks import checkpoint_blocks
from dlperf_slurm.worker.frameworks.pytorch.compiler import compile_function
from dlperf_slurm.worker.frameworks.pytorch.dali import open_dali
from dlperf_slurm.worker.frameworks.pytorch.device import (
    allow_tf32,
    choose_device,
    load_weights,
    make_events,
    read_versions,
    to_numpy,
)
from dlperf_slurm.worker.frameworks.pytorch.generation import Generation
from dlperf_slurm.worker.frameworks.pytorch.loader import (
    GpuCopies,
    Tensors,
    make_tensors,
    open_loader,
)
from dlperf_slurm.worker.frameworks.pytorch.training import (
    AUTOCAST_TYPES,
    PURE_TYPES,
    clip_gradients,
    distribute,
    do_nothing,
    is_sharded,
    join_ranks,
    leave_ranks,
    make_optimizer,
    make_scaler,
)
from dlperf_slurm.worker.work import UNFUSED, Work


class TorchSession:
    """PyTorch's implementation of `worker.session.Session`."""

    def __init__(self, case: Case, rank_info: RankInfo, device: torch.device) -> None:
        work = Work(case, rank_info, __package__)
        model = work.builder.Model(work.definition)
        # a sharded model moves to the device shard by shard: the whole model may not fit there
        if not is_sharded(case):
            model = model.to(device)
        load_weights(model, work.generate_weights())
        torch.manual_seed(work.dropout_seed)
        if case.axes.precision in PURE_TYPES:
            model = model.to(PURE_TYPES[case.axes.precision])
        if case.axes.memory_format == "channels_last":
            model = model.to(memory_format=torch.channels_last)

        self.parameter_count = sum(parameter.numel() for parameter in model.parameters())
        self.device_name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        self.versions = read_versions(case, device)
        self._case = case
        self._is_training = case.axes.mode == TRAIN
        self._device = device
        float_type = PURE_TYPES.get(case.axes.precision, torch.float32)
        # autocast would convert the images in each step
        self._compute_type = AUTOCAST_TYPES.get(case.axes.precision, float_type)
        self._types = {"images": self._compute_type, "labels": float_type}
        self._copies = GpuCopies(self._make_empty) if device.type == "cuda" else None
        self._plain_model = model
        self._autocast = torch.autocast(
            device.type,
            AUTOCAST_TYPES.get(case.axes.precision),
            enabled=case.axes.precision in AUTOCAST_TYPES,
        )
        self._work = work
        self.load(self.stage(work.make_batch()))
        if self._is_training:
            self._prepare_training(case, rank_info)
        else:
            self._prepare_inference(case)

    def _prepare_training(self, case: Case, rank_info: RankInfo) -> None:
        work, model = self._work, self._plain_model
        if case.axes.activation_checkpointing:
            checkpoint_blocks(model)
        self._model, self._wait, self._without_mean, self._forget_gathered = distribute(
            case, rank_info, model, self._device
        )
        self._parameters = list(model.parameters())
        self._optimizer = make_optimizer(case, work.rule, model)
        self._clip_global_norm = work.largest_norm
        self._scaler = make_scaler(case, self._device)
        self._batches_per_step = case.axes.gradient_accumulation
        self._is_step_begun = False
        self._model = compile_function(self._model, case.axes.compiler)
        self._compute_loss = compile_function(work.builder.compute_loss, case.axes.compiler)
        self._loss = torch.full((), float("nan"))

    def _prepare_inference(self, case: Case) -> None:
        self._model = self._plain_model.eval()
        self._forget_gathered = do_nothing
        if case.axes.is_generation:
            with torch.inference_mode():
                self._generation = Generation(
                    self._model, self._inputs[0], self._compute_type, case.axes
                )
        else:
            self._model = compile_function(self._model, case.axes.compiler)

    def step(self) -> None:
        self._compute_mean()
        if self._clip_global_norm is not None:
            self._scaler.unscale_(self._optimizer)
            clip_gradients(self._parameters, self._clip_global_norm)
        self._scaler.step(self._optimizer)
        self._scaler.update()

    def accumulate(self) -> None:
        with self._without_mean():
            self._backpropagate()

    def _compute_mean(self) -> None:
        """Backpropagate a step's last batch: gradients are then averaged over ranks, and scaled."""
        self._backpropagate()
        self._wait()
        self._is_step_begun = False

    def _backpropagate(self) -> None:
        """Set the loss, and add the batch's gradients to those of the step's earlier batches."""
        if not self._is_step_begun:
            self._optimizer.zero_grad(set_to_none=True)
            self._is_step_begun = True
        with self._autocast:
            logits = self._model(*self._inputs)
            loss = self._compute_loss(self._work.definition, logits, self._batch)
        self._loss = loss.detach()
        if self._batches_per_step > 1:
            loss = loss / self._batches_per_step
        self._scaler.scale(loss).backward()

    def stage(self, batch: Dict[str, Any]) -> Tensors:
        tensors = make_tensors(batch, self._types)
        if self._copies:
            return {name: tensor.pin_memory() for name, tensor in tensors.items()}
        return tensors

    def load(self, staged: Tensors) -> None:
        """Copy a staged batch to the device; on the CPU too, as the case measures this copy."""
        # DALI's batches are on the GPU already, on the stream of the steps
        if self._copies is None or any(tensor.is_cuda for tensor in staged.values()):
            self._batch = self._copy(staged)
        else:
            self._batch = self._copies.copy(staged)
        self._inputs = self._work.take_inputs(self._batch)

    def _copy(self, staged: Tensors) -> Tensors:
        batch = {name: self._make_empty(tensor) for name, tensor in staged.items()}
        for name, tensor in staged.items():
            batch[name].copy_(tensor, non_blocking=True)
        return batch

    def _make_empty(self, tensor: torch.Tensor) -> torch.Tensor:
        is_image = tensor.ndim == 4 and self._case.axes.memory_format == "channels_last"
        layout = torch.channels_last if is_image else torch.contiguous_format
        return torch.empty_like(tensor, device=self._device, memory_format=layout)

    def open_pipeline(self, dataset: Dataset, order: Sequence[Any]) -> Iterator[Tensors]:
        is_pinned = self._copies is not None
        return open_loader(self._case, dataset, order, self._types, is_pinned)

    def open_dali(self, rank_info: RankInfo) -> Iterator[Tensors]:
        """Yield batches, {"images", "labels"}, from NVIDIA DALI, for cases with data "dali"."""
        return open_dali(
            self._case, rank_info, self._work.definition, self._device, self._compute_type
        )

    def set_learning_rate(self, learning_rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate

    def predict(self, batch: Dict[str, Any]) -> Any:
        tensors = self._copy(make_tensors(batch, self._types))
        return to_numpy(self._evaluate(self._work.take_inputs(tensors)))

    def infer(self) -> None:
        with torch.inference_mode(), self._autocast:
            self._logits = self._model(*self._inputs)
        self.synchronize()

    def prefill(self) -> None:
        with torch.inference_mode(), self._autocast:
            self._generation.prefill()
        self.synchronize()

    def decode(self) -> None:
        with torch.inference_mode(), self._autocast:
            self._generation.decode()
        self.synchronize()

    def read_tokens(self) -> Any:
        return self._generation.read_tokens()

    def continue_without_cache(self) -> Any:
        with torch.inference_mode(), self._autocast:
            return self._generation.continue_without_cache()

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def make_clock(self, boundaries: int) -> Any:
        if self._device.type == "cuda":
            return EventClock(make_events(boundaries))
        return HostClock(boundaries)

    def reset_peak_memory(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            host.reset_peak_resident()

    def read_peak_memory_bytes(self) -> int:
        """Return the peak of torch's allocator on a GPU, or of resident memory on the CPU."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        return host.read_peak_resident_bytes()

    def describe_attention(self) -> str:
        """Return names of the attention kernels that torch runs in a forward pass of one sample.

        UNFUSED if there is none; '' for a model without attention. One sample only: a forward pass
        of the whole batch without the compiler may need more memory than the compiled steps did.
        """
        if not self._work.has_attention:
            return ""
        with NamesOfAttention() as names, torch.set_grad_enabled(self._is_training), self._autocast:
            self._plain_model(*(values[:1] for values in self._inputs))
        self._forget_gathered()
        return " and ".join(sorted(names.found)) or UNFUSED

    def read_loss(self) -> float:
        if self._is_training:
            return float(self._loss.item())
        if self._case.axes.is_generation:
            return self._read_loss_of_last()
        return self._read_loss_of(self._logits)

    def evaluate_loss(self) -> float:
        return self._read_loss_of(self._evaluate(self._inputs))

    def _evaluate(self, inputs: Sequence[torch.Tensor]) -> Any:
        # without DDP, which has nothing to average here, and uncompiled, to avoid a recompilation
        self._plain_model.eval()
        with torch.no_grad(), self._autocast:
            logits = self._plain_model(*inputs)
        self._forget_gathered()
        self._plain_model.train(self._is_training)
        return logits

    def _read_loss_of(self, logits: Any) -> float:
        with torch.no_grad(), self._autocast:
            loss = self._work.compute_loss(logits, self._batch)
        return float(loss.item())

    def _read_loss_of_last(self) -> float:
        """Return the loss of the last generated tokens, with each taken as its own label."""
        labels = {"labels": self._generation.last}
        with torch.inference_mode(), self._autocast:
            return float(self._work.compute_loss(self._generation.logits[:, None], labels))

    def compute_gradients(self) -> Dict[str, Any]:
        for _ in range(self._batches_per_step - 1):
            self.accumulate()
        self._compute_mean()
        scale = self._scaler.get_scale()
        return {
            name: to_numpy(parameter.grad) / scale
            for name, parameter in self._plain_model.named_parameters()
        }

    def read_weights(self) -> Dict[str, Any]:
        return {
            name: to_numpy(parameter) for name, parameter in self._plain_model.named_parameters()
        }

    def close(self) -> None:
        if self._is_training:
            leave_ranks(self._case)


def start_session(case: Case, rank_info: RankInfo) -> TorchSession:
    torch.set_num_threads(case.cpus_per_rank)
    device = choose_device(case, rank_info)
    allow_tf32(case.axes.precision == "tf32")
    torch.backends.cudnn.benchmark = True
    if case.device == "cpu" and case.nodes == 1:
        # Gloo binds to the interface of this host's name, which may not resolve to any
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    join_ranks(case, rank_info, device)
    return TorchSession(case, rank_info, device)
