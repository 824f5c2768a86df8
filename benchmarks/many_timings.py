"""Seconds and memory of a DuckDB query that aggregates the step times of many runs in Parquet.

    python benchmarks/many_timings.py /tmp/many --runs 157 --distinct 25

A run has 50 cases x 20 repeats x 64 ranks x 100 steps, 6.4 million generated timings in one
steps.parquet with the columns that `report` writes. 157 runs have 10^9; `make bench` takes a tenth
of them. Runs beyond the distinct ones are hard links, which saves disk space but no work of the
query.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import duckdb
from measuring import measure_command
from rows import Row

CASES, REPEATS, RANKS, STEPS = 50, 20, 64, 100
TIMINGS_PER_RUN = CASES * REPEATS * RANKS * STEPS
ROWS = f"""
SELECT
    'pytorch-resnet50-8n8g-bs' || (8 * (1 + n // {REPEATS * RANKS * STEPS})) || '-fp32' AS case_id,
    CAST(1 + n // {RANKS * STEPS} % {REPEATS} AS INTEGER) AS repeat,
    CAST(n // {STEPS} % {RANKS} AS INTEGER) AS rank,
    CAST(1 + n % {STEPS} AS INTEGER) AS step,
    0.01 * (1 + n // {REPEATS * RANKS * STEPS}) * (1 + 0.02 * random()) AS seconds
FROM range({TIMINGS_PER_RUN}) AS rows(n)
"""
# as in docs/beyond-one-machine.md
QUERY = """
WITH slowest AS (
    SELECT filename, case_id, repeat, step, max(seconds) AS seconds, avg(seconds) AS mean
    FROM read_parquet('{results}/*/report/steps/*/steps.parquet', filename = true)
    GROUP BY ALL
)
SELECT case_id, count(*) AS steps,
    approx_quantile(seconds, 0.5) AS median_seconds,
    approx_quantile(seconds, 0.99) AS p99_seconds,
    1 - avg(mean / seconds) AS waiting_share
FROM slowest GROUP BY case_id ORDER BY case_id
"""
# runs in a separate process, so that the peak memory is the query's alone
ASK = """
import sys, duckdb
query, memory, spilled, cases = sys.argv[1:]
with duckdb.connect(config={"memory_limit": memory, "temp_directory": spilled}) as connection:
    connection.execute("SET preserve_insertion_order = false")
    assert len(connection.execute(query).fetchall()) == int(cases)
"""
MEMORY = "1GB"
RUNS, DISTINCT = 16, 4


def main() -> None:
    """Make the missing runs, then run the query once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    parser.add_argument("--runs", type=int, default=157)
    parser.add_argument("--distinct", type=int, default=25, help="others are links to these")
    parser.add_argument("--memory", default=MEMORY)
    options = parser.parse_args()
    make_runs(options.results, options.runs, options.distinct)
    for row in ask(options.results, options.runs, options.memory):
        print(row)


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 6, over a tenth of 10^9 timings, or a hundredth if `is_quick`."""
    runs = 2 if is_quick else RUNS
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder), runs, min(runs, DISTINCT))
        return ask(Path(folder), runs, MEMORY)


def make_runs(results: Path, runs: int, distinct: int) -> None:
    """Write the step times of the missing runs."""
    with duckdb.connect() as connection:
        for number in range(runs):
            path = find_steps(results, number)
            if path.exists():
                continue
            path.parent.mkdir(parents=True)
            if number >= distinct:
                os.link(find_steps(results, number % distinct), path)
                continue
            connection.execute(f"COPY ({ROWS}) TO '{path}' (FORMAT parquet)")


def ask(results: Path, runs: int, memory: str) -> list[Row]:
    """Measure one query over all runs."""
    query = QUERY.format(results=results)
    command = [sys.executable, "-c", ASK, query, memory, str(results / "spilled"), str(CASES)]
    cost = measure_command(command)
    files = [find_steps(results, number) for number in range(runs)]
    gibibytes = sum(path.stat().st_size for path in files) / 2**30
    what = f"DuckDB over {runs * TIMINGS_PER_RUN:,} timings of {runs} runs, {gibibytes:.1f} GiB"
    full = "python benchmarks/many_timings.py /tmp/many"
    return [
        Row(6, what, cost.cpu_seconds, "CPU s", command=f"{full} --runs {runs}"),
        Row(
            6,
            f"{what}: most memory, of {memory} that it may take before it spills",
            cost.peak_mib,
            "MiB",
            command=f"{full} --runs {runs}",
        ),
    ]


def find_steps(results: Path, number: int) -> Path:
    """Return the path of a run's step times."""
    return results / f"run{number:04}" / "report" / "steps" / "all" / "steps.parquet"


if __name__ == "__main__":
    main()
