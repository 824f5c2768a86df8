"""CPU seconds of `history` on a folder of many runs, with summaries of the runs and without.

    python benchmarks/history.py

The runs are copies of a run of one case, with the run id replaced in all files.
"""

import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from aggregation import find_run
from measuring import TOOL, Cost, measure_command
from rows import Row, print_rows

from dlperf_slurm.jobs.run_directory import CODE_DIR, Run

RUNS = 1000
REPEATS = 3
FIRST = datetime(2024, 1, 1)
WHY_MISSED = "the files and folders of all attempts are looked at for changes"


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 5 about history."""
    count = RUNS // 10 if is_quick else RUNS
    with tempfile.TemporaryDirectory() as name:
        run = find_run(Path(name), REPEATS, 20, cases=1)
        copy_run(run, count - 1)
        first, again = (measure(run.path.parent, Path(name)) for _ in range(2))
    what = f"history of {count:,} runs"
    return [
        Row(
            *(5, f"{what}, from summaries", again.cpu_seconds, "CPU s"),
            target=2.0,
            why_missed=WHY_MISSED,
        ),
        Row(5, f"{what}, whose summaries are made", first.cpu_seconds, "CPU s"),
    ]


def copy_run(run: Run, count: int) -> None:
    """Make copies with different run ids, a day apart."""
    texts = [
        (path.relative_to(run.path), path.read_bytes())
        for path in run.path.rglob("*")
        if path.is_file() and CODE_DIR not in path.relative_to(run.path).parts
    ]
    for number in range(count):
        day = FIRST + timedelta(days=number)
        run_id = f"{day:%Y%m%d}-120000-{run.run_id.split('-', 2)[2]}"
        folder = run.path.with_name(run_id)
        for place, content in texts:
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            is_text = path.suffix in (".json", ".jsonl")
            own = content.replace(run.run_id.encode(), run_id.encode()) if is_text else content
            path.write_bytes(own)
        shutil.copymode(run.path, folder)


def measure(results: Path, cache: Path) -> Cost:
    """Measure the cost of the command."""
    command = [*TOOL, "history", "--results", str(results)]
    return measure_command(command, env={"XDG_CACHE_HOME": str(cache)})


if __name__ == "__main__":
    print_rows(measure_rows)
