"""A framework's name -> where its managed environment lies; `provision.environments` makes it."""

import os
import sys
from pathlib import Path


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
    """The folder of a framework's managed environment, whether it is there or not."""
    return find_environments_dir() / framework
