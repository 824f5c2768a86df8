"""Where folders lie: what ships with the package, the user's settings, managed environments."""

import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def find_resource_dir(name: str) -> Path:
    """The folder `name` (templates, matrices, site_configs) of the package, else of a checkout."""
    installed = PACKAGE / name
    return installed if installed.is_dir() else PACKAGE.parent / name


def find_user_config_dir() -> Path:
    """The user's folder for settings, whether it is there or not (XDG Base Directory)."""
    config_home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config_home).expanduser() / "dlperf-slurm"


def find_environments_dir() -> Path:
    """The folder of managed environments.

    It is `$DLPERF_SLURM_ENVIRONMENTS`, else a folder inside the virtual environment that runs this
    tool (they come and go with it), else one in the user's data folder.
    """
    chosen = os.environ.get("DLPERF_SLURM_ENVIRONMENTS")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "environments"
    data_home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data_home).expanduser() / "dlperf-slurm" / "environments"


def find_managed_environment(framework: str) -> Path:
    """The folder that `env create` makes for a framework, whether it is there or not."""
    return find_environments_dir() / framework
