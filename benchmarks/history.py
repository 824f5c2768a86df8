"""CPU seconds of `history` on a folder of many runs, with summaries of the runs and without.

    python benchmarks/history.py

The runs are copies of one run, with the run id replaced in all files.
"""

import shutil
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from aggregation import CAT, find_run, make_cat
from measuring import TOOL, Cost, measure_command
from rows import Row, print_rows

from dlperf_slurm.jobs.run_directory import CODE_DIR, Run
from dlperf_slurm.plain_text import count_things

# runs, and the cases of each
SIZES = ((1000, 1), (100, 56))
REPEATS = 3
FIRST = datetime(2024, 1, 1)
# most CPU seconds from summaries
TARGETS = {1000: 2.0, 100: 1.0}
WHY_MISSED = "the files and folders of all attempts are looked at for changes"
WHY_COLD = "each record is read and validated once; `cat` only copies it"


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 5 about history."""
    return [
        row
        for runs, cases in SIZES
        for row in measure_size(runs // 10 if is_quick else runs, cases, TARGETS[runs])
    ]


def measure_size(runs: int, cases: int, target: float) -> list[Row]:
    """Return the rows of one results folder: its first history, beside `cat`, and the second."""
    with tempfile.TemporaryDirectory() as name:
        run = find_run(Path(name), REPEATS * cases, 20, cases=cases)
        copy_run(run, runs - 1)
        results = run.path.parent
        cat = measure_command(make_cat(results, "record.json"))
        first, again = (measure(results, Path(name)) for _ in range(2))
    what = f"history of {runs:,} runs x {count_things(cases, 'case')} x {REPEATS} repeats"
    return [
        Row(
            *(5, f"{what}, from summaries", again.cpu_seconds, "CPU s"),
            target=target,
            why_missed=WHY_MISSED,
        ),
        Row(
            *(5, f"{what}, whose summaries are made", first.cpu_seconds, "CPU s"),
            peer=CAT,
            peer_measured=cat.cpu_seconds,
            target_ratio=1.0 if cases > 1 else None,
            why_missed=WHY_COLD,
        ),
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
