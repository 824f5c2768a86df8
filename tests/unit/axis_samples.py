"""A value of each axis that is not its default, for tests of every axis."""

from typing import Any

from dlperf_slurm.contract.axes import INFER

SCRIPT = "theirs"

AXIS_SAMPLES: dict[str, Any] = {
    "framework": "tensorflow2",
    "topology": "2n4g",
    "batch_size_per_device": 16,
    "precision": "amp-bf16",
    "compiler": "torch.compile",
    "memory_format": "channels_last",
    "gradient_sync": "horovod",
    "clip_global_norm": True,
    "mode": INFER,
    "script": SCRIPT,
    "data": "zmq",
    "data_workers": 5,
    "prefetch_batches": 7,
    "optimizer": "adamw",
    "gradient_accumulation": 3,
    "activation_checkpointing": True,
    "loss_scale": 128,
    "output_tokens": 6,
    "prompt_length": 9,
    "global_batch_size": 96,
}
