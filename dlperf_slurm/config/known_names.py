"""A name that somebody wrote -> whether it is known, or the nearest one that is."""

import difflib
from collections.abc import Iterable, Sequence


def suggest(name: object, known: Iterable[str]) -> str:
    """The closing sentence of a message, with the nearest known name; empty when none is near."""
    near = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    return f". Did you mean {near[0]!r}?" if near else ""


def check_known(value: str, known: Sequence[str], what: str) -> str:
    """Return `value`; raises ValueError, which lists the known ones, when it is not among them."""
    if value not in known:
        raise ValueError(
            f"{value!r} is not {what}; known: {', '.join(known)}{suggest(value, known)}"
        )
    return value
