"""DuckDB, shut off from files and network, with settings that no job around the tool changes."""

from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# In a Slurm job DuckDB takes 80 % of SLURM_MEM_PER_NODE and SLURM_CPUS_PER_TASK, which may be of a
# job around the tool with next to nothing. These are bounds, not what is taken.
SETTINGS: dict[str, Union[str, bool, int, float, list[str]]] = {"memory_limit": "2GB", "threads": 1}


def open_database(
    path: Union[str, Path] = ":memory:", read_only: bool = False, written: Optional[Path] = None
) -> "DuckDBPyConnection":
    """A DuckDB connection, with its errors, that reaches no file but those in `written`.

    Only a database in memory has such a folder.
    """
    import duckdb

    if written is None:
        settings = {**SETTINGS, "enable_external_access": False, "lock_configuration": True}
        return duckdb.connect(str(path), read_only=read_only, config=settings)
    connection = duckdb.connect(str(path), config=SETTINGS)
    # SET takes no parameters
    folder = str(written).replace("'", "''")
    connection.execute(f"SET allowed_directories = ['{folder}/']")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
