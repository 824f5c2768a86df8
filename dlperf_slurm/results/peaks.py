"""Work that a model's definition asks for: what a case is held against what its device reaches."""

import json
from functools import lru_cache
from typing import Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.peaks import NUMBER_FORMATS
from dlperf_slurm.contract.record import Record
from dlperf_slurm.worker.models import load_model

# The backward pass has a product for the input's gradient and one for the weight's.
TRAINING_FLOPS_FACTOR = 3
TERA = 1e12
GIGA = 1e9
# of a step, that of its backward pass, beside which gradients can be summed: two products of three
BACKWARD_SHARE = 1 - 1 / TRAINING_FLOPS_FACTOR


def count_training_flops(record: Record) -> Optional[float]:
    """Count the operations of a sample's forward and backward pass.

    None in inference, and for a model of another script, whose work is not known.
    """
    if record.case.log_format or record.case.axes.mode != TRAIN:
        return None
    return _count_training_flops(record.case.model, json.dumps(record.case.model_parameters))


@lru_cache(maxsize=256)
def _count_training_flops(model: str, parameters: str) -> float:
    """Count them once for all repeats of a model with these parameters, as JSON."""
    definition = load_model(model).Definition(**json.loads(parameters))
    return float(TRAINING_FLOPS_FACTOR * int(definition.flops_per_sample))


def count_decoded_bytes(case: Case) -> float:
    """Count what one decoding of a rank's batch reads of its device's memory, on average.

    Mixed precision reads weights in full precision, and has its keys and values as it multiplies.
    """
    axes = case.axes
    definition = load_model(case.model).Definition(**case.model_parameters)
    # the first of them reads the prompt and the token behind it, the last all tokens but one
    positions = axes.prompt_length + axes.output_tokens / 2
    weights, cached = definition.count_decoded_values(axes.batch_size, positions)
    weight_bytes = 2 if axes.precision in ("bf16", "fp16") else 4
    cache_bytes = 2 if NUMBER_FORMATS.get(axes.precision) in ("bf16", "fp16") else 4
    return float(weight_bytes * weights + cache_bytes * cached)
