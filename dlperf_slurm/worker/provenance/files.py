"""Files of /proc and /sys -> their text, "" if not readable."""

from pathlib import Path
from typing import Dict, Iterable, List

ROOT = Path("/")


def read_text(path: Path) -> str:
    """Read a file without surrounding white space; "" if it is not readable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        # also for existing files: reading the speed of an interface that is down gives EINVAL
        return ""


def list_folder(path: Path, pattern: str = "*") -> List[Path]:
    """List the matching entries of a folder, sorted by name; empty if there is no folder."""
    return sorted(path.glob(pattern)) if path.is_dir() else []


def join_distinct(values: Iterable[str]) -> str:
    """Join the distinct nonempty values, in order of first appearance."""
    return ", ".join(dict.fromkeys(filter(None, values)))


def drop_empty(facts: Dict[str, str]) -> Dict[str, str]:
    """Return the facts without those that are empty, so unknown."""
    return {name: value for name, value in facts.items() if value}
