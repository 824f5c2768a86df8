"""A record -> the operations and bytes that the model's definition requires."""

import json
from functools import lru_cache
from typing import Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.peaks import NUMBER_FORMATS
from dlperf_slurm.contract.record import Record
from dlperf_slurm.worker.models import load_model

# forward pass, plus a product each for the gradients of the input and of the weights
TRAINING_FLOPS_FACTOR = 3
TERA = 1e12
GIGA = 1e9
# share of a step in the backward pass (two of three products), where all-reduces can overlap
BACKWARD_SHARE = 1 - 1 / TRAINING_FLOPS_FACTOR


def count_training_flops(record: Record) -> Optional[float]:
    """Count the floating-point operations of one sample's forward and backward pass.

    None for inference, and if the model of an external script does not state them.
    """
    if record.case.axes.mode != TRAIN:
        return None
    if record.case.log_format:
        return TRAINING_FLOPS_FACTOR * record.case.flops_per_sample or None
    return _count_training_flops(record.case.model, json.dumps(record.case.model_parameters))


@lru_cache(maxsize=256)
def _count_training_flops(model: str, parameters: str) -> float:
    """Count a model's floating-point operations per sample, forward and backward.

    `parameters` is the JSON text of the model parameters, which can be the key of a cache.
    """
    definition = load_model(model).Definition(**json.loads(parameters))
    return float(TRAINING_FLOPS_FACTOR * int(definition.flops_per_sample))


def count_decoded_bytes(case: Case) -> float:
    """Count the bytes that one decoding step of a rank reads from device memory, on average.

    Mixed precision reads weights in fp32; keys and values have the format of the products.
    """
    axes = case.axes
    definition = load_model(case.model).Definition(**case.model_parameters)
    # mean length: the first step reads the prompt and one token, the last all tokens but one
    positions = axes.prompt_length + axes.output_tokens / 2
    weights, cached = definition.count_decoded_values(axes.batch_size, positions)
    weight_bytes = 2 if axes.precision in ("bf16", "fp16") else 4
    cache_bytes = 2 if NUMBER_FORMATS.get(axes.precision) in ("bf16", "fp16") else 4
    return float(weight_bytes * weights + cache_bytes * cached)
