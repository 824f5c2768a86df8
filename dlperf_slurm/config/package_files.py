"""The name of a folder that ships with the package -> where it lies."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def find_resource_dir(name: str) -> Path:
    """The folder `name` (templates, matrices, site_configs) of the package, else of a checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
