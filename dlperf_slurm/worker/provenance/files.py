"""Files of /proc and /sys -> their text, empty where there is none that may be read."""

from pathlib import Path
from typing import Dict, Iterable, List

ROOT = Path("/")


def read_text(path: Path) -> str:
    """The text without the white space around it; "" where the file may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        # also of files that are there: the speed of an interface that is down is EINVAL
        return ""


def list_folder(path: Path, pattern: str = "*") -> List[Path]:
    """What matches, by name; nothing where there is no such folder."""
    return sorted(path.glob(pattern)) if path.is_dir() else []


def join_distinct(values: Iterable[str]) -> str:
    """The values in the order in which they first come, without empty ones."""
    return ", ".join(dict.fromkeys(filter(None, values)))


def drop_empty(facts: Dict[str, str]) -> Dict[str, str]:
    """What is not known is left out."""
    return {name: value for name, value in facts.items() if value}
