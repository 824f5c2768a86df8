"""DuckDB within a Slurm job that has next to nothing."""

from dlperf_slurm.results.database import open_database


def test_job_around_the_tool_does_not_bound_its_memory(monkeypatch):
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1")
    with open_database() as connection:
        connection.execute("CREATE TABLE numbers AS SELECT range AS n FROM range(1000000)")
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (1000000,)
