"""A JSON file of the contract -> its dataclass, by functions that are made once for each class.

A run has hundreds of thousands of results of ranks, each of which the contract's own builder looks
at field by field, by its type. Whatever does not fit is left to that one, which says what is wrong.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Optional, TypeVar, Union, cast, get_args, get_origin

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import build_dataclass, read_values
from dlperf_slurm.contract.record import Record

D = TypeVar("D")
Kind = TypeVar("Kind", Case, Record)
Convert = Callable[[Any], Any]

# the values of dictionaries that are taken as they are
_PLAIN = frozenset((str, int, float, bool))


class _UnfitError(Exception):
    """A value that is not of its type, or one that only the contract's builder converts."""


def read_json(path: Path, kind: type[Kind], root: Path) -> Kind:
    """What `contract.json_files.read_json` makes of the same file, and raises as it does."""
    return build_quickly(kind, read_values(path, root), str(path))


def build_quickly(kind: type[D], data: Mapping[str, Any], where: str) -> D:
    """What `build_dataclass` makes of the same, and raises as it does."""
    try:
        return cast(D, _make_builder(cast(Any, kind))(data))
    except _UnfitError:
        return build_dataclass(kind, data, where, is_complete=True)


@cache
def _make_builder(kind: type) -> Convert:
    fields = dataclasses.fields(kind)
    types: dict[str, Any] = {field.name: field.type for field in fields}
    converts = {name: _make_convert(expected) for name, expected in types.items()}
    has_plain_init = not hasattr(kind, "__post_init__") and not hasattr(kind, "__slots__")
    assert has_plain_init, f"{kind.__name__} is more than its fields"

    # as a file has them when all are there, each of its very type
    names = tuple(sorted(types))
    plain_types = tuple(types[name] for name in names)

    def build(data: Any) -> Any:
        if type(data) is not dict:
            raise _UnfitError
        if tuple(data) == names and tuple(map(type, data.values())) == plain_types:
            made: Any = object.__new__(kind)
            made.__dict__.update(data)
            return made
        values = {}
        for name, value in data.items():
            if type(value) is types.get(name):
                values[name] = value
            elif name in converts:
                values[name] = converts[name](value)
            else:
                raise _UnfitError
        if len(values) != len(fields):
            raise _UnfitError
        made = object.__new__(kind)
        made.__dict__.update(values)
        return made

    return build


@cache
def _make_convert(expected: Any) -> Convert:
    """What makes a value of a type; one that is of the very type already is not asked for."""
    if dataclasses.is_dataclass(expected):
        return _make_builder(cast(type, expected))
    if expected is float:
        return _make_float
    if get_origin(expected) is Union:
        return _make_choice(get_args(expected))
    if get_origin(expected) is dict:
        return _make_copier(_PLAIN if get_args(expected)[1] is not str else frozenset((str,)))
    if get_origin(expected) is tuple:
        return _make_tuple_maker(get_args(expected)[0])
    return _refuse


def _make_float(value: Any) -> float:
    if type(value) is not int:
        raise _UnfitError
    return float(value)


def _refuse(value: Any) -> Any:
    raise _UnfitError


def _make_choice(kinds: tuple[Optional[type], ...]) -> Convert:
    def choose(value: Any) -> Any:
        if type(value) not in kinds:
            raise _UnfitError
        return value

    return choose


def _make_copier(kinds: frozenset[type]) -> Convert:
    def copy(value: Any) -> Any:
        if type(value) is not dict or not kinds.issuperset(map(type, value.values())):
            raise _UnfitError
        return dict(value)

    return copy


def _make_tuple_maker(expected: Any) -> Convert:
    convert = _make_convert(expected)

    def make(value: Any) -> Any:
        if type(value) is not list:
            raise _UnfitError
        return tuple([item if type(item) is expected else convert(item) for item in value])

    return make
