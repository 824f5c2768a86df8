"""DuckDB, with settings that do not depend on the job that it happens to run in."""

from pathlib import Path
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# In a Slurm job DuckDB takes 80 % of SLURM_MEM_PER_NODE and SLURM_CPUS_PER_TASK, which may be of a
# job around the tool with next to nothing. These are bounds, not what is taken.
SETTINGS: dict[str, Union[str, bool, int, float, list[str]]] = {"memory_limit": "2GB", "threads": 1}


def open_database(
    path: Union[str, Path] = ":memory:", read_only: bool = False
) -> "DuckDBPyConnection":
    """As duckdb.connect does, with its errors."""
    import duckdb

    return duckdb.connect(str(path), read_only=read_only, config=SETTINGS)
