"""Key paths of a TOML file -> their line numbers, and their text in messages."""

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Union

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple[Union[str, int], ...]


# strings and comments, whose brackets and line ends have no meaning; other brackets and line ends
_TOKEN = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}|"(?:[^"\\\n]|\\.)*"'''
    r"""|'{3}(?:[^']|'{1,2}(?!'))*'{3,5}|'[^'\n]*'"""
    r"|#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)


def locate_keys(text: str) -> dict[KeyPath, int]:
    """Return the line number (from 1) of each key of a valid TOML text, by key path.

    A key path is a tuple such as ("axes", "framework", 1). The time is linear in the file's size.
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    # number of tables of each [[name]] so far
    counts: dict[KeyPath, int] = {}
    for line, statement in _split_statements(text):
        data = tomllib.loads(statement)
        if statement.startswith("["):
            table = _enter_table(data, counts)
            paths: Iterable[KeyPath] = (table[:end] for end in range(1, len(table) + 1))
        else:
            paths = _walk_paths(data, table)
        for path in paths:
            found.setdefault(path, line)
    return found


def _split_statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the statements of a TOML text, [headers] included, with their line numbers."""
    start, line, depth, lines = 0, 1, 0, 0
    for token in _TOKEN.finditer(text + "\n"):
        mark = token.group()
        lines += mark.count("\n")
        depth += (mark in ("[", "{")) - (mark in ("]", "}"))
        if mark != "\n" or depth:
            continue
        statement = text[start : token.start()].strip()
        if statement and not statement.startswith("#"):
            yield line, statement
        start, line = token.end(), lines + 1


def _enter_table(header: dict[str, Any], counts: dict[KeyPath, int]) -> KeyPath:
    """Return the key path of the table that a parsed [header] opens; count it in `counts`."""
    path: KeyPath = ()
    data: Any = header
    while data:
        ((key, data),) = data.items()
        path = (*path, key)
        if isinstance(data, list):
            counts[path] = counts.get(path, 0) + 1
            data = {}
        if path in counts:
            path = (*path, counts[path] - 1)
    return path


def _walk_paths(value: Any, path: KeyPath) -> Iterable[KeyPath]:
    """Yield the key path of a value, and of all values in it."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk_paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk_paths(item, (*path, index))


def drop_indices(path: KeyPath, data: Any) -> KeyPath:
    """Drop list indices from a key path where `data` has a single value instead of a list."""
    parts: list[Union[str, int]] = []
    for part in path:
        if isinstance(part, str):
            data = data.get(part) if isinstance(data, dict) else None
        elif isinstance(data, list):
            data = data[part] if part < len(data) else None
        else:
            continue
        parts.append(part)
    return tuple(parts)


def format_key(path: KeyPath) -> str:
    """Format a key path: ("axes", "framework", 1) -> "axes.framework[1]"."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")
