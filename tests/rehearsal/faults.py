"""Faults that a rehearsal must find: each breaks the adapter or its session in this process.

A function without arguments is the fault of its name.
"""

import ctypes

import torch
from torch.distributed import fsdp

from dlperf_slurm.worker.frameworks.pytorch import session, training


def add_to_step(work):
    """Call `work(session)` after each step."""
    step = session.TorchSession.step

    def with_work(self):
        step(self)
        work(self)

    session.TorchSession.step = with_work


def read_the_loss():
    add_to_step(lambda self: self._loss.item())


def do_not_pin_batches():
    session.TorchSession.stage = lambda self, batch: session.make_tensors(batch, self._types)


def copy_on_the_stream_of_the_steps():
    make = session.GpuCopies

    def make_on_that_stream(make_empty):
        copies = make(make_empty)
        copies._stream = torch.cuda.current_stream()
        return copies

    session.GpuCopies = make_on_that_stream


def give_memory_back():
    add_to_step(lambda self: torch.cuda.empty_cache())


def leave_autocast_off():
    session.AUTOCAST_TYPES = {}


def leave_tf32_as_torch_has_it():
    session.allow_tf32 = lambda is_allowed: None


def always_allow_tf32():
    allow = session.allow_tf32
    session.allow_tf32 = lambda is_allowed: allow(True)


def do_not_fuse_the_optimizer():
    adamw = torch.optim.AdamW
    torch.optim.AdamW = lambda groups, fused, **options: adamw(groups, foreach=True, **options)


def attend_by_plain_products():
    for switch in ("flash", "mem_efficient", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{switch}_sdp")(False)


def average_nothing():
    wrap = training.wrap_in_ddp

    def wrap_and_forget(model, device):
        wrapped = wrap(model, device)
        wrapped.require_backward_grad_sync = False
        return wrapped

    training.wrap_in_ddp = wrap_and_forget


def send_parts_in_another_type():
    shard = fsdp.fully_shard
    policy = fsdp.MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    fsdp.fully_shard = lambda module, mesh, mp_policy: shard(module, mesh=mesh, mp_policy=policy)


def average_each_batch():
    session.TorchSession.accumulate = lambda self: self._backpropagate()


def leave_something_on_the_first_gpu():
    add_to_step(lambda self: torch.ones(1, device="cuda:0") + 1)


def do_not_wait_for_inference():
    infer, wait = session.TorchSession.infer, session.TorchSession.synchronize

    def infer_without_waiting(self):
        session.TorchSession.synchronize = lambda self: None
        infer(self)
        session.TorchSession.synchronize = wait

    session.TorchSession.infer = infer_without_waiting


def call_what_is_not_known():
    library = ctypes.CDLL("libcublas.so.13")
    add_to_step(lambda self: library.cublasSgemv_v2())


def do_more_in_each_step():
    earlier = []

    def do_more(self):
        earlier.append(None)
        for _ in earlier:
            self._loss + 1

    add_to_step(do_more)
