"""Step times of many runs -> the seconds and the memory that DuckDB aggregates their Parquet in.

    python benchmarks/many_timings.py /tmp/many --runs 157 --distinct 25

A run has 50 cases x 20 repeats x 64 ranks x 100 steps, 6.4 million timings in its steps.parquet,
with the columns that `report` writes; the times are made up. 157 runs have 10^9;
of those beyond the distinct ones the files are links to them, which spares the disk, not the query.
"""

import argparse
import resource
import time
from pathlib import Path

import duckdb

CASES, REPEATS, RANKS, STEPS = 50, 20, 64, 100
ROWS = f"""
SELECT
    'pytorch-resnet50-8n8g-bs' || (8 * (1 + n // {REPEATS * RANKS * STEPS})) || '-fp32' AS case_id,
    CAST(1 + n // {RANKS * STEPS} % {REPEATS} AS INTEGER) AS repeat,
    CAST(n // {STEPS} % {RANKS} AS INTEGER) AS rank,
    CAST(1 + n % {STEPS} AS INTEGER) AS step,
    0.01 * (1 + n // {REPEATS * RANKS * STEPS}) * (1 + 0.02 * random()) AS seconds
FROM range({CASES * REPEATS * RANKS * STEPS}) AS rows(n)
"""
# as in docs/beyond-one-machine.md
QUERY = """
WITH slowest AS (
    SELECT filename, case_id, repeat, step, max(seconds) AS seconds, avg(seconds) AS mean
    FROM read_parquet('{results}/*/report/steps.parquet', filename = true)
    GROUP BY ALL
)
SELECT case_id, count(*) AS steps,
    approx_quantile(seconds, 0.5) AS median_seconds,
    approx_quantile(seconds, 0.99) AS p99_seconds,
    1 - avg(mean / seconds) AS waiting_share
FROM slowest GROUP BY case_id ORDER BY case_id
"""


def main() -> None:
    """Make the runs that are not there, then ask once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=int, default=157)
    parser.add_argument("--distinct", type=int, default=25, help="others are links to these")
    parser.add_argument("--memory", default="1GB")
    options = parser.parse_args()
    spilled = options.results / "spilled"
    settings = {"memory_limit": options.memory, "temp_directory": str(spilled)}
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET preserve_insertion_order = false")
        for number in range(options.runs):
            path = find_steps(options.results, number)
            if path.exists():
                continue
            path.parent.mkdir(parents=True)
            if number >= options.distinct:
                path.hardlink_to(find_steps(options.results, number % options.distinct))
                continue
            connection.execute(f"COPY ({ROWS}) TO '{path}' (FORMAT parquet)")
        files = list(options.results.glob("*/report/steps.parquet"))
        size = sum(path.stat().st_size for path in files)
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        rows = connection.execute(QUERY.format(results=options.results)).fetchall()
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"{len(files)} runs, {RANKS * sum(row[1] for row in rows):.3g} timings, {size / 2**30:.1f} "
        f"GiB: {wall:.0f} s, {cpu:.0f} CPU seconds, at most {after.ru_maxrss / 2**20:.2f} GiB"
    )
    for row in rows[:3]:
        print(row)


def find_steps(results: Path, number: int) -> Path:
    """The file of a run."""
    return results / f"run{number:04}" / "report" / "steps.parquet"


if __name__ == "__main__":
    main()
