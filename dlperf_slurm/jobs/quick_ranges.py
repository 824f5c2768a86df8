"""A record, or what lies beside it -> whether all of it is plainly within its ranges.

A run has hundreds of thousands of results of ranks: each field is looked at in all of them at once.
What is not plainly right is left to `record_ranges`, which knows better, and says what is wrong.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from operator import attrgetter
from typing import Any, Union, cast, get_args, get_origin

Range = tuple[float, float]
# whether the values of a field, in several objects, are all right
Check = Callable[[Sequence[Any]], bool]


def make_check(
    kind: type, ranges: Mapping[tuple[type, str], Range], usual: Range, size: Range
) -> Check:
    """What tells whether objects of a dataclass of the contract are plainly right.

    `ranges` are by class and field, `usual` of all other numbers, `size` of a number that may be a
    text. Texts are of ASCII.
    """

    def make(kind: type, name: str, expected: Any) -> Check:
        if dataclasses.is_dataclass(expected):
            return make_check(cast(type, expected), ranges, usual, size)
        if expected in (int, float):
            return _limit(expected, *ranges.get((kind, name), usual))
        if get_origin(expected) is tuple:
            check = make(kind, name, get_args(expected)[0])
            return lambda values: check([*chain.from_iterable(values)])
        if get_origin(expected) is dict:
            is_of_texts = get_args(expected)[1] is str
            held: set[type] = {str} if is_of_texts else {str, int, float, bool}
            return lambda values: all(
                _are_plain(one.keys(), {str}) and _are_plain(one.values(), held) for one in values
            )
        if expected == Union[int, str]:
            check = _limit(int, *size)
            return lambda values: (
                _are_plain(values, {int, str}) and check([v for v in values if type(v) is int])
            )
        kinds: set[type] = {*(get_args(expected) if get_origin(expected) is Union else (expected,))}
        return lambda values: _are_plain(values, kinds)

    checks = [
        (attrgetter(field.name), make(kind, field.name, field.type))
        for field in dataclasses.fields(kind)
    ]
    return lambda values: not values or all(check([*map(get, values)]) for get, check in checks)


def _limit(kind: type, least: float, most: float) -> Check:
    # the sum tells of a NaN, which is neither the least nor the most
    return lambda values: (
        not values
        or (
            {kind}.issuperset(map(type, values))
            and least <= min(values)
            and max(values) <= most
            and isfinite(sum(values))
        )
    )


def _are_plain(values: Iterable[object], kinds: set[type]) -> bool:
    """Whether they are of these types, and their texts of ASCII."""
    found = [*values]
    there = {*map(type, found)}
    if not kinds.issuperset(there):
        return False
    texts = found if there == {str} else [value for value in found if isinstance(value, str)]
    return "".join(cast(list[str], texts)).isascii()
