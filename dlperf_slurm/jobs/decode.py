"""JSON of the contract -> its dataclass; msgspec validates keys, types and ranges in one pass.

This is the only validator for the JSON files of a run directory. A field that is not in RANGES is
limited to PLAUSIBLE, so that no number is unlimited. Control characters are removed from texts, and
line ends from names, so that they reach no terminal and no file of a report. The worker has no
msgspec, and writes and reads its own files with `contract.json_files`.
"""

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Optional, TypeVar, Union, cast, get_args, get_origin

import msgspec

from dlperf_slurm.contract.json_files import SCHEMA_VERSION, ContractError, drop_schema_version
from dlperf_slurm.files.reading import JSON_LIMIT_BYTES, decode_text, parse_json, read_bytes
from dlperf_slurm.plain_text import make_one_line, strip_controls

D = TypeVar("D")
Range = tuple[float, float]

# 30 million years in seconds, 900 TiB in bytes
PLAUSIBLE: Range = (0, 1e15)
INT64: Range = (-(2**63), 2**63 - 1)
COUNT: Range = (1, 1e9)
# -1 is the whole job, or a host
RANK: Range = (-1, 1e9)
SECONDS: Range = (1e-9, 1e9)
SHARE: Range = (0, 1)
# a share of two counters that are not read at the same instant
COUNTED_SHARE: Range = (-0.05, 1.05)
# the loss of a training may diverge; its step times are still valid
LOSS: Range = (-3.5e38, 3.5e38)

RANGES: Mapping[str, Range] = {
    "Axes.batch_size_per_device": COUNT,
    "Axes.gradient_accumulation": COUNT,
    "Axes.loss_scale": COUNT,
    "Case.attempt": COUNT,
    "Case.flops_per_sample": (0, 1e18),
    "Case.model_parameters": INT64,
    "Case.repeat": COUNT,
    "Case.seed": (0, 1e18),
    "CpuUse.cpus": (1, 1e6),
    "CpuUse.other_share": SHARE,
    "CpuUse.run_share": SHARE,
    "CpuUse.stolen_share": SHARE,
    "DevicePeak.flops_per_s": (0, 1e18),
    "Epoch.number": COUNT,
    "Epoch.top1": SHARE,
    "Epoch.training_loss": LOSS,
    "Epoch.validation_loss": LOSS,
    "Event.array_task_id": (-1, 1e9),
    "Event.start": (-1, 1e9),
    "Failure.rank": RANK,
    "GpuState.device": (0, 1e6),
    "Manifest.lost_after_seconds": SECONDS,
    "Manifest.poll_seconds": SECONDS,
    "Manifest.slowest_poll_seconds": SECONDS,
    "Manifest.within_seconds": (0, 1e9),
    "OtherProcess.cpu_share": SHARE,
    "PlannedCase.epochs": (0, 1e9),
    "PlannedCase.protocol": INT64,
    "PlannedCase.repeats": (0, 1e5),
    "RankResult.final_loss": LOSS,
    "RankResult.local_rank": RANK,
    "RankResult.rank": RANK,
    "RankResult.window_seconds": SECONDS,
    "Telemetry.device": (-2, 1e6),
    "Telemetry.least_clock_mhz": (0, 1e6),
    "Telemetry.mean_clock_mhz": (0, 1e6),
    "Telemetry.mean_power_watts": (0, 1e6),
    "Telemetry.mean_utilization": COUNTED_SHARE,
    "Telemetry.peak_temperature_celsius": (-273.15, 1e3),
    "Telemetry.stolen_share": COUNTED_SHARE,
    "Training.target_top1": SHARE,
}


# texts of several lines; all others are names
MULTILINE = ("detail", "message", "reason", "traceback")
# what ASCII JSON contains if a text has control characters or others beyond ASCII
_MAY_BE_UNPLAIN = re.compile(rb"\\[bfnrtu]")


def read_json(path: Path, kind: type[D], root: Optional[Path] = None) -> D:
    """Read a file that `contract.json_files.write_json` wrote; refuse links below `root`.

    Raises FileProblem, which names the file and the key; FileNotFoundError if it is missing.
    """
    return decode(kind, read_bytes(path, JSON_LIMIT_BYTES, root), str(path), is_versioned=True)


def decode(kind: type[D], content: bytes, where: str, is_versioned: bool = False) -> D:
    """Decode JSON that has all fields of the dataclass `kind`, and no other key.

    Texts are cleaned (`clean_texts`). With `is_versioned`, `schema_version` must be that of this
    tool. Raises FileProblem, whose message begins with `where` and names the key.
    """
    # searching for a plain byte takes a hundredth of the time of matching the pattern
    is_plain = content.isascii() and b"\x7f" not in content
    if is_plain and (b"\\" not in content or not _MAY_BE_UNPLAIN.search(content)):
        try:
            value = _make_decoder(cast(type, kind), is_versioned).decode(content)
            return msgspec.convert(value, kind, from_attributes=True)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
    # The JSON is invalid, or has texts to clean: decode with Python's reader, for its error message
    # or its value.
    data = parse_json(decode_text(content, where), where)
    if is_versioned and isinstance(data, dict):
        drop_schema_version(data, where)
    return build(kind, data, where, is_versioned)


def build(kind: type[D], data: object, where: str, is_versioned: bool = False) -> D:
    """Validate decoded JSON and make the dataclass `kind` of it; raises ContractError.

    Texts are cleaned (`clean_texts`). With `is_versioned`, `data` also needs this tool's
    `schema_version`. The message begins with `where`.
    """
    struct = _make_struct(cast(type, kind), is_versioned)
    try:
        # validated first: what is valid is not nested deeply
        value: Any = msgspec.convert(data, struct)
        plain = clean_texts(data)
        if plain != data:
            value = msgspec.convert(plain, struct)
    except msgspec.ValidationError as error:
        raise ContractError(f"{where}: {_describe(error, data)}") from error
    return msgspec.convert(value, kind, from_attributes=True)


def clean_texts(value: Any, key: str = "") -> Any:
    """Return decoded JSON or TOML with each text on one line, and without control characters.

    `key` is the name of the value, or of the list that it is in: texts under the keys of MULTILINE
    keep their lines.
    """
    if isinstance(value, str):
        return strip_controls(value) if key in MULTILINE else make_one_line(value)
    if isinstance(value, list):
        return [clean_texts(item, key) for item in value]
    if isinstance(value, dict):
        return {make_one_line(name): clean_texts(item, name) for name, item in value.items()}
    return value


@cache
def _make_decoder(kind: type, is_versioned: bool) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(_make_struct(kind, is_versioned))


@cache
def _make_struct(kind: type, is_versioned: bool = False) -> type:
    """Return a msgspec struct type with a dataclass's fields, all required, with their limits."""
    fields = [
        (field.name, _add_ranges(f"{kind.__name__}.{field.name}", field.type))
        for field in dataclasses.fields(kind)
    ]
    if is_versioned:
        version = msgspec.Meta(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)
        fields.append(("schema_version", Annotated[int, version]))
    return msgspec.defstruct(kind.__name__, fields, forbid_unknown_fields=True, gc=False)


def _add_ranges(key: str, expected: Any) -> Any:
    """Return the type of field `key` with the limits of RANGES; dataclasses become structs."""
    if dataclasses.is_dataclass(expected):
        return _make_struct(cast(type, expected))
    if expected in (int, float):
        least, most = RANGES.get(key, PLAUSIBLE)
        return Annotated[expected, msgspec.Meta(ge=expected(least), le=expected(most))]
    kinds = tuple(_add_ranges(key, kind) for kind in get_args(expected) if kind is not Ellipsis)
    if get_origin(expected) is Union:
        return Union[kinds]
    if get_origin(expected) is tuple:
        return tuple[kinds[0], ...]  # type: ignore[valid-type]
    return dict[kinds] if kinds else expected  # type: ignore[misc,valid-type]


_PLACE = r"\.(\w+)|\[(\d+)\]"


def _describe(error: msgspec.ValidationError, data: Any) -> str:
    """Format an error with the value in `data`: "ranks[0].rank is -7: expected `int` >= -1"."""
    message, is_placed, place = str(error).rpartition(" - at `$")
    if not is_placed:
        message, place = place, ""
    place = place.rstrip("`")
    for name, index in re.findall(_PLACE, place.split("[...]")[0]):
        data = data[name] if name else data[int(index)]
    words = re.fullmatch(r"Object (missing required|contains unknown) field `(.*)`", message, re.S)
    if words:
        what = "is missing" if words[1].startswith("missing") else "is an unknown key"
        return f"{f'{place}.'.lstrip('.')}{words[2][:80]} {what}"
    key = place.replace("[...]", "").lstrip(".") or "the file"
    return f"{key} is {data!r:.200}: {message[0].lower()}{message[1:]}"
