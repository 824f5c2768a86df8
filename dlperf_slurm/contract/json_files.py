"""A dataclass of the contract <-> its JSON file, versioned.

Loads on Python 3.7 with nothing but the standard library, as the contract does.
"""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Dict, Mapping, Type, TypeVar, Union, cast

from dlperf_slurm.contract.case import Case, ModelParameter
from dlperf_slurm.contract.parity import Parity
from dlperf_slurm.contract.record import Failure, Record

SCHEMA_VERSION = 1


class ContractError(ValueError):
    """A case or record file that cannot be trusted; the message says why."""


def write_json(
    path: Path, value: Union[Case, Record, Failure, Parity], is_synced: bool = True
) -> None:
    """Write `value` so that a reader sees the whole file or none of it.

    Not synced, it may be lost when the machine dies in the next seconds.
    """
    data = {"schema_version": SCHEMA_VERSION}
    data.update(dataclasses.asdict(value))
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, sort_keys=True)
        file.write("\n")
        if is_synced:
            file.flush()
            os.fsync(file.fileno())
    os.replace(str(partial), str(path))


T = TypeVar("T", Case, Record, Failure, Parity)
D = TypeVar("D")


def read_json(path: Path, kind: Type[T]) -> T:
    """Read a file that `write_json` wrote.

    Raises ContractError, which names the file and the key, when it is not whole or of another
    schema version; FileNotFoundError when it is not there.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ContractError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ContractError(f"{path}: not a JSON object")
    version = data.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise ContractError(
            f"{path}: schema_version is {version}, this code reads {SCHEMA_VERSION}"
        )
    return build_dataclass(kind, data, str(path))


def build_dataclass(kind: Type[D], data: Mapping[str, Any], where: str) -> D:
    """A dataclass of this project from decoded JSON; ContractError for a wrong key or type.

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
            raise ContractError(f"{where}: {name} is not a key of {kind.__name__}")
    return kind(
        **{name: _convert(fields[name].type, data[name], f"{where}: {name}") for name in data}
    )


def _convert(expected: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(expected):
        return build_dataclass(cast(Any, expected), value, where)
    if expected is float and type(value) is int:
        return float(value)
    if expected in (int, float, bool, str):
        if type(value) is not expected:
            raise ContractError(f"{where} is {value!r}, not of type {expected.__name__}")
        return value
    container = "dict" if expected in (Dict[str, ModelParameter], Dict[str, str]) else "list"
    if type(value).__name__ != container:
        raise ContractError(f"{where} is {value!r}, not of type {container}")
    if expected == Dict[str, ModelParameter]:
        return {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
    if expected == Dict[str, str]:
        return {str(key): str(v) for key, v in value.items()}
    item = expected.__args__[0]
    return tuple(_convert(item, v, f"{where}[{i}]") for i, v in enumerate(value))
