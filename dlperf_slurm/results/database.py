"""DuckDB connections without access to other files or the network, with fixed resource limits."""

from pathlib import Path
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# By default DuckDB sizes itself by SLURM_MEM_PER_NODE and SLURM_CPUS_PER_TASK, which may belong to
# a tiny job that this tool runs in. These are upper limits.
SETTINGS: dict[str, Union[str, bool, int, float, list[str]]] = {"memory_limit": "2GB", "threads": 1}


def open_database(written: Optional[Path] = None) -> "DuckDBPyConnection":
    """Open a DuckDB database in memory whose SQL cannot access the network or files.

    If `written` is a folder, SQL may read and write files in it alone. Raises duckdb.Error.
    """
    import duckdb

    connection = duckdb.connect(config=SETTINGS)
    if written is not None:
        # SET does not accept query parameters
        folder = str(written).replace("'", "''")
        connection.execute(f"SET allowed_directories = ['{folder}/']")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection
