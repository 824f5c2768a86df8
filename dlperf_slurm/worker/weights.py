"""A model's definition -> its initial weights, the same in every framework."""

import sys
from typing import Iterable, Iterator, Mapping, Tuple, TypeVar

from dlperf_slurm.contract.axes import PARAMETER_SERVER, SHARDED, TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Array
from dlperf_slurm.worker.models import Network, Parameter
from dlperf_slurm.worker.session import Session

T = TypeVar("T")

# normal samples are float64: generating pieces avoids a second copy of a large parameter
PIECE_SIZE = 2**18
# 200 MB on each rank: a job that is killed for memory here loses its measurement
MOST_SUMMED = 50_000_000


def generate_weights(definition: Network, seed: int) -> Iterator[Tuple[str, Array]]:
    """Yield the initial weights as (canonical name, float32 array), one at a time to save memory.

    `seed` must be in 0 ... 2**32 - 1. The same arguments give the same bits in every environment,
    and a parameter's weights do not depend on which other parameters exist.
    """
    for parameter in definition.list_parameters():
        yield parameter.name, _make_weight(parameter, seed)


def _make_weight(parameter: Parameter, seed: int) -> Array:
    import numpy

    values: Array = numpy.full(parameter.size, parameter.mean, numpy.float32)
    if parameter.standard_deviation:
        # RandomState's streams are frozen (NEP 19); Generator's may change between NumPy versions.
        random = numpy.random.RandomState([seed, *parameter.name.encode("ascii")])
        for start in range(0, parameter.size, PIECE_SIZE):
            piece = values[start : start + PIECE_SIZE]
            piece += parameter.standard_deviation * random.standard_normal(piece.size)
    return values.reshape(parameter.shape)


def match_weights(
    parameters: Mapping[str, T], weights: Iterable[Tuple[str, Array]]
) -> Iterator[Tuple[str, T, Array]]:
    """Yield each framework parameter with its name and its weights: (name, parameter, values).

    Raises KeyError for weights without a parameter and, at the end, ValueError for parameters
    without weights.
    """
    missing = dict(parameters)
    for name, values in weights:
        yield name, missing.pop(name), values
    if missing:
        raise ValueError(f"no weights for {', '.join(missing)}")


def round_as_stored(values: Array, precision: str) -> Array:
    """Round float32 or float64 values to the type in which a precision stores weights.

    The result has the type of `values`. Only bf16 and fp16 store weights in 16 bits; ties go to
    the even number.
    """
    if precision == "fp16":
        return values.astype("float16").astype(values.dtype)
    if precision != "bf16":
        return values
    bits = values.astype("float32").view("uint32")
    # the upper half of a float32 is a bfloat16
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) & 0xFFFF0000
    return rounded.view("float32").astype(values.dtype)


def sum_weights(case: Case, session: Session) -> float:
    """Sum the absolute values of this rank's weights, to compare them between ranks.

    Returns 0, for unknown, for a single rank; if ranks do not have equal weights (as in inference,
    with sharding or parameter servers); for more than MOST_SUMMED parameters, which host memory may
    not hold on all ranks; and, after a warning, if the framework fails to read them.
    """
    axes = case.axes
    if (
        axes.mode != TRAIN
        or case.world_size == 1
        or axes.gradient_sync in (SHARDED, PARAMETER_SERVER)
        or session.parameter_count > MOST_SUMMED
    ):
        return 0.0
    try:
        weights = session.read_weights().values()
        return sum(float(abs(values).sum(dtype="float64")) for values in weights)
    # the measurement is complete: no error of a framework may lose it
    except Exception as error:
        print(f"the weights of the ranks were not compared: {error!r}", file=sys.stderr, flush=True)
        return 0.0
