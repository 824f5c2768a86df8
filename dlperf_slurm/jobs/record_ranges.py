"""A record, or what lies beside it -> fields whose value cannot have been measured, by pydantic."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import Case, Training
from dlperf_slurm.contract.peaks import DevicePeak
from dlperf_slurm.contract.record import (
    HOST,
    WHOLE_JOB,
    Epoch,
    Failure,
    RankResult,
    Telemetry,
)
from dlperf_slurm.contract.surroundings import CpuUse, GpuBefore, Neighbour
from dlperf_slurm.jobs.quick_ranges import Check, Range, make_check

# of every number without a range of its own: 30 million years in seconds, 900 TiB in bytes
PLAUSIBLE: Range = (0, 1e15)
SHARE: Range = (0, 1)
# of a number that a word may stand for
SIZE: Range = (1, 1e9)
# a training may go wrong, and still have taken its time
LOSS: Range = (-3.5e38, 3.5e38)
# counters of two clocks, read one after the other
COUNTED_SHARE: Range = (-0.05, 1.05)

RANGES: Mapping[tuple[type, str], Range] = {
    (Case, "repeat"): (1, 1e9),
    (Case, "attempt"): (1, 1e9),
    (Case, "seed"): (0, 1e18),
    (Axes, "gradient_accumulation"): (1, 1e9),
    (Training, "target_top1"): SHARE,
    (RankResult, "window_seconds"): (1e-9, 1e9),
    (RankResult, "rank"): (WHOLE_JOB, 1e9),
    (RankResult, "local_rank"): (WHOLE_JOB, 1e9),
    (RankResult, "final_loss"): LOSS,
    (Failure, "rank"): (WHOLE_JOB, 1e9),
    (Epoch, "number"): (1, 1e9),
    (Epoch, "top1"): SHARE,
    (Epoch, "validation_loss"): LOSS,
    (Epoch, "training_loss"): LOSS,
    (Telemetry, "device"): (HOST, 1e6),
    (Telemetry, "mean_utilization"): COUNTED_SHARE,
    (Telemetry, "stolen_share"): COUNTED_SHARE,
    (Telemetry, "mean_power_watts"): (0, 1e6),
    (Telemetry, "mean_clock_mhz"): (0, 1e6),
    (Telemetry, "least_clock_mhz"): (0, 1e6),
    (Telemetry, "peak_temperature_celsius"): (-273.15, 1e3),
    (Neighbour, "cpu_share"): SHARE,
    (CpuUse, "cpus"): (1, 1e6),
    (CpuUse, "own_share"): SHARE,
    (CpuUse, "other_share"): SHARE,
    (CpuUse, "stolen_share"): SHARE,
    (GpuBefore, "device"): (0, 1e6),
    (DevicePeak, "flops_per_s"): (0, 1e18),
}


def _check_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("allowed: text; half a surrogate pair is no character") from None
    return text


Text = Annotated[str, AfterValidator(_check_text)]


def find_range_problem(value: object) -> str:
    """The fields of a record, or of what stands beside one, whose value cannot be.

    With what is allowed; empty when all can.
    """
    kind = cast(type, type(value))
    if _make_quick_check(kind)([value]):
        return ""
    try:
        _make_model(kind).model_validate(value)
    except ValidationError as error:
        return "; ".join(_describe(mistake) for mistake in error.errors())
    return ""


@cache
def _make_quick_check(kind: type) -> Check:
    return make_check(kind, RANGES, PLAUSIBLE, SIZE)


def _describe(mistake: Mapping[str, Any]) -> str:
    place = ""
    for part in mistake["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    message = str(mistake["msg"]).replace("Value error, ", "")
    return f"{place} is {mistake['input']!r:.80}: {message[0].lower()}{message[1:]}"


@cache
def _make_model(kind: type) -> type[BaseModel]:
    """A model of a dataclass of the contract whose numbers have ranges."""
    fields: dict[str, Any] = {
        field.name: (_add_range(kind, field.name, field.type), ...)
        for field in dataclasses.fields(kind)
    }
    settings = ConfigDict(
        from_attributes=True, strict=True, hide_input_in_errors=True, protected_namespaces=()
    )
    return create_model(kind.__name__, __config__=settings, **fields)


def _add_range(kind: type, name: str, expected: Any) -> Any:
    if dataclasses.is_dataclass(expected):
        return _make_model(cast(type, expected))
    if expected is str:
        return Text
    if expected in (int, float):
        least, most = RANGES.get((kind, name), PLAUSIBLE)
        return Annotated[expected, Field(ge=least, le=most, allow_inf_nan=False)]
    if expected == Union[int, str]:
        return Union[Annotated[int, Field(ge=SIZE[0], le=SIZE[1])], Text]
    if get_origin(expected) is dict and get_args(expected) == (str, str):
        return dict[Text, Text]
    if get_origin(expected) is tuple:
        return tuple[_add_range(kind, name, get_args(expected)[0]), ...]  # type: ignore[misc]
    return expected
