"""DuckDB within a Slurm job that has next to nothing."""

import duckdb
import pytest

from dlperf_slurm.results.database import open_database


def test_job_around_the_tool_does_not_bound_its_memory(monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1")
    with open_database() as connection:
        connection.execute("CREATE TABLE numbers AS SELECT range AS n FROM range(1000000)")
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (1000000,)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO 'elsewhere.csv'",
        "ATTACH 'other.duckdb'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET allowed_paths = ['/etc/passwd']",
    ],
)
@pytest.mark.parametrize("has_folder", [False, True])
def test_no_statement_reaches_another_file(tmp_path, statement, has_folder):
    folder = tmp_path / "folder"
    folder.mkdir()
    with open_database(written=folder if has_folder else None) as connection:
        with pytest.raises(duckdb.Error):
            connection.execute(statement)
        if has_folder:
            target = folder / "target.parquet"
            connection.execute(f"COPY (SELECT 1 AS n) TO '{target}' (FORMAT parquet)")
            assert target.stat().st_size > 0
