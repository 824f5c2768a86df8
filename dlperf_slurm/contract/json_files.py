"""A dataclass of the contract <-> its versioned JSON file.

Loads on Python 3.7 with only the standard library.
"""

import dataclasses
import json
import reprlib
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence, Type, TypeVar, Union, cast

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.parity import Parity, Proofs
from dlperf_slurm.contract.record import Failure, Record
from dlperf_slurm.files import FileProblem, reading
from dlperf_slurm.files.writing import write_file

SCHEMA_VERSION = 1


class ContractError(FileProblem, ValueError):
    """An invalid file of the contract, such as a case or record; the message says why."""


def write_json(
    path: Path, value: Union[Case, Record, Failure, Parity, Proofs], is_synced: bool = True
) -> None:
    """Write `value` with the schema version as JSON, synced unless told otherwise."""
    data = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(value)}
    write_file(path, format_json(data).encode(), is_synced=is_synced)


def write_sidecar(path: Path, value: Any, root: Optional[Path] = None) -> None:
    """Write a dataclass beside a record as JSON without a schema version; raises FileProblem."""
    write_file(path, format_json(dataclasses.asdict(value)).encode(), root)


def format_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


T = TypeVar("T", Case, Record, Failure, Parity)
D = TypeVar("D")


def read_json(path: Path, kind: Type[T], root: Optional[Path] = None) -> T:
    """Read a file that `write_json` wrote.

    Below `root`, no link is followed. Raises FileProblem, which names the file and the key, if it
    is unreadable, invalid or of another schema version; FileNotFoundError if it is missing.
    """
    data = reading.read_json(path, root=root)
    if not isinstance(data, dict):
        raise ContractError(f"{path}: not a JSON object")
    return build_dataclass(kind, drop_schema_version(data, str(path)), str(path), is_complete=True)


def read_sidecar(path: Path, kind: Type[D], root: Optional[Path] = None) -> D:
    """Read a file that `write_sidecar` wrote; raises as `read_json`."""
    return build_dataclass(kind, reading.read_json(path, root=root), str(path), is_complete=True)


def drop_schema_version(data: Mapping[str, Any], where: str) -> Dict[str, Any]:
    """Return decoded JSON without its schema version; raises ContractError for another version."""
    values = dict(data)
    version = values.pop("schema_version", None)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ContractError(
            f"{where}: schema_version is {reprlib.repr(version)}, but this dlperf-slurm reads "
            f"{SCHEMA_VERSION}; use the version that wrote the file (tool_version in the run's "
            "manifest.json), or measure again"
        )
    return values


def build_dataclass(
    kind: Type[D], data: Mapping[str, Any], where: str, is_complete: bool = False
) -> D:
    """Build a dataclass from decoded JSON; raises ContractError for a wrong key or type.

    Fields with a default may be missing unless `is_complete`; files that we write have all fields,
    and dataclasses in fields must have all. For float fields integers become floats, for tuples
    lists become tuples; other types are not converted. `where` names the file in messages.
    """
    fields = {field.name: field for field in dataclasses.fields(cast(Any, kind))}
    if not isinstance(data, dict):
        raise ContractError(f"{where}: must be a JSON object")
    for name, field in fields.items():
        may_lack = not is_complete and field.default is not dataclasses.MISSING
        if name not in data and not may_lack:
            raise ContractError(f"{where}: {name} is missing")
    for name in data:
        if name not in fields:
            raise ContractError(f"{where}: {name[:80]} is not a known key")
    return kind(
        **{name: _convert(fields[name].type, data[name], f"{where}: {name}") for name in data}
    )


def _convert(expected: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(expected):
        return build_dataclass(cast(Any, expected), value, where, is_complete=True)
    if expected is float and type(value) is int:
        return float(value)
    origin: Any = getattr(expected, "__origin__", None)
    kinds: Sequence[Any] = getattr(expected, "__args__", ())
    if origin is dict:
        _check_type(value, (dict,), where)
        return {key: _convert(kinds[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is Union and type(value) is list:
        origin, kinds = next(
            ((tuple, kind.__args__) for kind in kinds if hasattr(kind, "__args__")), (origin, kinds)
        )
    if origin is tuple:
        _check_type(value, (list,), where)
        return tuple(_convert(kinds[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    _check_type(value, [getattr(kind, "__origin__", kind) for kind in kinds or (expected,)], where)
    return value


def _check_type(value: Any, kinds: Sequence[Type[Any]], where: str) -> None:
    if type(value) not in kinds:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ContractError(f"{where} is {reprlib.repr(value)}, not of type {names}")
