"""The frameworks' managed environments: where they lie; making and checking them is below."""

import os
import sys
from pathlib import Path


def find_environments_dir() -> Path:
    """Where managed environments live.

    `$DLPERF_SLURM_ENVIRONMENTS`, else inside the virtual environment that runs this tool (they
    come and go with it), else the user's data folder.
    """
    chosen = os.environ.get("DLPERF_SLURM_ENVIRONMENTS")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if sys.prefix != sys.base_prefix:
        return Path(sys.prefix) / "environments"
    data_home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data_home).expanduser() / "dlperf-slurm" / "environments"


def find_managed_environment(framework: str) -> Path:
    return find_environments_dir() / framework
