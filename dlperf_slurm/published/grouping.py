"""Items, and a function to find their key -> lists of items by key."""

from collections.abc import Hashable, Iterable
from typing import Callable, TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def group_by(items: Iterable[Item], find_key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by the key that `find_key` returns for each; keys and items keep their order."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(find_key(item), []).append(item)
    return groups
