"""A dataclass of the contract <-> its JSON file, versioned.

Loads on Python 3.7 with nothing but the standard library, as the contract does.
"""

import dataclasses
import json
import reprlib
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Type, TypeVar, Union, cast

from dlperf_slurm.contract.axes import DYNAMIC, INFER, LARGEST, TRAIN, WORKER, Axes, format_ladder
from dlperf_slurm.contract.case import Case, ModelParameter
from dlperf_slurm.contract.parity import Parity
from dlperf_slurm.contract.record import Failure, Record
from dlperf_slurm.files import FileProblem, reading
from dlperf_slurm.files.writing import write_file

# version 1 had the axes beside the other values of a case
SCHEMA_VERSION = 2


class ContractError(ValueError):
    """A case or record file that cannot be trusted; the message says why."""


def write_json(
    path: Path,
    value: Union[Case, Record, Failure, Parity],
    root: Optional[Path] = None,
    is_synced: bool = True,
) -> None:
    """Write `value` as `write_file` does, and raise as it does."""
    data = {"schema_version": SCHEMA_VERSION}
    data.update(dataclasses.asdict(value))
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    write_file(path, text.encode(), root, is_synced)


T = TypeVar("T", Case, Record, Failure, Parity)
D = TypeVar("D")


def read_json(path: Path, kind: Type[T], root: Optional[Path] = None) -> T:
    """Read a file that `write_json` wrote, in this version of the tool or one with version 1 files.

    Below `root`, no link is followed. Raises ContractError, which names the file and the key, when
    it is not whole or of another schema version; FileNotFoundError when it is not there.
    """
    return build_dataclass(kind, read_values(path, kind, root), str(path))


def read_values(path: Path, kind: Type[T], root: Optional[Path]) -> Dict[str, Any]:
    """The values of such a file, in the keys of this version and not looked at; raises as that."""
    try:
        data = reading.read_json(path, root=root)
    except FileProblem as error:
        raise ContractError(str(error)) from error
    if not isinstance(data, dict):
        raise ContractError(f"{path}: not a JSON object")
    return lift(data, LIFTS[kind], str(path))


def lift(
    data: Mapping[str, Any], lift_first: Callable[[Mapping[str, Any]], Dict[str, Any]], where: str
) -> Dict[str, Any]:
    """The decoded JSON of any version without its version, in the keys of this one.

    `lift_first` makes it of version 1. Raises ContractError for another version, and for a file of
    version 1 that lacks what all of them have.
    """
    values = dict(data)
    version = values.pop("schema_version", None)
    if version not in (1, SCHEMA_VERSION):
        raise ContractError(
            f"{where}: schema_version is {reprlib.repr(version)}, this code reads {SCHEMA_VERSION}"
        )
    try:
        return lift_first(values) if version == 1 else values
    except (KeyError, TypeError, AttributeError) as error:
        raise ContractError(f"{where}: not of schema_version 1: {error!r}") from error


def lift_case(data: Mapping[str, Any]) -> Dict[str, Any]:
    """A case of version 1 in the keys of version 2."""
    values = dict(data)
    topology = f"{values.pop('nodes')}n{values.pop('devices_per_node')}g"
    ladder = values.pop("batch_ladder", ())
    is_largest = values.pop("is_largest_batch", False)
    log_format = values.pop("source", "")
    log_rule = values.pop("source_rule", "")
    values["batch_size_step"] = values.pop("batch_granularity", 1)
    if ladder or is_largest:
        # a record of a search has the batch size that was found
        found = values["batch_size_per_device"]
        values["batch_size_per_device"] = found or (format_ladder(ladder) or LARGEST)
    axes = take_axes({**values, "topology": topology, "source": log_format or WORKER})
    rest = {name: value for name, value in values.items() if name not in FORMER_AXES}
    return {**rest, "axes": axes, "log_format": log_format or None, "log_rule": log_rule or None}


def lift_record(data: Mapping[str, Any]) -> Dict[str, Any]:
    """A record, or a comparison, of version 1 in the keys of version 2."""
    return {**data, "case": lift_case(data["case"])}


# the axes by their names in version 1
_FORMER_NAMES = {"gradient_sync": "distribution", "script": "source"}
FORMER_AXES = {
    _FORMER_NAMES.get(field.name, field.name): field.name for field in dataclasses.fields(Axes)
}


def take_axes(values: Mapping[str, Any]) -> Dict[str, Any]:
    """The axes among the keys of version 1: its loss scale 0 is DYNAMIC, its mode "val" INFER."""
    axes = {name: values[former] for former, name in FORMER_AXES.items() if former in values}
    axes["loss_scale"] = axes.get("loss_scale") or DYNAMIC
    axes["mode"] = INFER if axes.get("mode") == "val" else TRAIN
    return axes


# by kind of file, the function that makes keys of version 2 from those of version 1
LIFTS: Mapping[Any, Callable[[Mapping[str, Any]], Dict[str, Any]]] = {
    Case: lift_case,
    Record: lift_record,
    Parity: lift_record,
    Failure: dict,
}


def build_dataclass(kind: Type[D], data: Mapping[str, Any], where: str) -> D:
    """A dataclass of this project from decoded JSON; raises ContractError for a wrong key or type.

    Keys with a default may be missing: files of earlier versions do not have them.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
    if not isinstance(data, dict):
        raise ContractError(f"{where}: expected an object for {kind.__name__}")
    for name, field in fields.items():
        if name not in data and field.default is dataclasses.MISSING:
            raise ContractError(f"{where}: {name} is missing")
    for name in data:
        if name not in fields:
            raise ContractError(f"{where}: {name[:80]} is not a key of {kind.__name__}")
    return kind(
        **{name: _convert(fields[name].type, data[name], f"{where}: {name}") for name in data}
    )


def _convert(expected: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(expected):
        return build_dataclass(cast(Any, expected), value, where)
    if expected is float and type(value) is int:
        return float(value)
    if expected in (int, float, bool, str):
        _check_type(value, (expected,), where)
        return value
    if getattr(expected, "__origin__", None) is Union:
        _check_type(value, expected.__args__, where)
        return value
    if expected == Dict[str, ModelParameter]:
        _check_type(value, (dict,), where)
        return {key: _convert_parameter(v, f"{where}.{key}") for key, v in value.items()}
    if expected == Dict[str, str]:
        _check_type(value, (dict,), where)
        for key, text in value.items():
            _check_type(text, (str, int, float, bool, type(None)), f"{where}.{key}")
        return {key: str(text) for key, text in value.items()}
    _check_type(value, (list,), where)
    item = expected.__args__[0]
    return tuple(_convert(item, v, f"{where}[{i}]") for i, v in enumerate(value))


def _convert_parameter(value: Any, where: str) -> ModelParameter:
    _check_type(value, (int, float, bool, str, list), where)
    if not isinstance(value, list):
        return cast(ModelParameter, value)
    for size in value:
        _check_type(size, (int,), where)
    return tuple(value)


def _check_type(value: Any, kinds: Sequence[Type[Any]], where: str) -> None:
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ContractError(f"{where} is {reprlib.repr(value)}, not of type {names}")
