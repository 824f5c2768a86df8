"""Key paths of a TOML file -> the lines on which they stand, and their spelling in messages."""

import sys
from collections.abc import Iterable
from typing import Any, Union

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KeyPath = tuple[Union[str, int], ...]


def locate_keys(text: str) -> dict[KeyPath, int]:
    """The line number (from 1) of the statement that sets each key of a TOML text.

    The parser does the work: a prefix of whole lines parses exactly where a statement ends, and
    the keys that are new there were set by it. This is quadratic, and only used to report mistakes.
    """
    lines = text.splitlines()
    found: dict[KeyPath, int] = {}
    start = 0
    for end in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        for path in _walk_paths(data, ()):
            found.setdefault(path, start + 1)
        start = end
    return found


def _walk_paths(value: Any, path: KeyPath) -> Iterable[KeyPath]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk_paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _walk_paths(item, (*path, index))


def drop_indices(path: KeyPath, data: Any) -> KeyPath:
    """The path as the file has it, without an index where it has one value instead of a list."""
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
    """The spelling of a key path: ("axes", "framework", 1) -> "axes.framework[1]"."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text
