"""Where the files that ship with the package lie: templates, matrices, site configs."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def find_resource_dir(name: str) -> Path:
    """The folder `name` inside an installed package, else at the top of a checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
