"""The runs of a results folder -> a row for each: title, site, state, age and best throughput."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.journal import CANCELLED, SUBMITTED, read_journal
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.reports.cells import Cell
from dlperf_slurm.results.history.run_cache import read_run_cache
from dlperf_slurm.stats.median import compute_median_interval

# column of the table of runs -> its key in a row
COLUMNS = {"run": "run_id", "title": "title", "site": "site", "state": "state", "age": "age",
    "best throughput": "headline", "fastest case": "best_case"}  # fmt: skip
# columns that a narrow terminal leaves out first
OMIT_FIRST = tuple(map([*COLUMNS].index, ("fastest case", "title")))

Row = dict[str, Any]


def list_rows(results_dir: Path, runs: Sequence[tuple[str, Path]]) -> tuple[list[Row], list[str]]:
    """Return a row for each of these runs (id, path), and one line per run that cannot be read.

    The keys of a row include "run_id", "path", "site", "state" and "headline".
    """
    if not runs:
        return [], []
    cache = read_run_cache(results_dir)
    entries: dict[str, list[Row]] = {}
    for entry in cache.list_entries():
        entries.setdefault(Path(entry["run_dir"]).name, []).append(entry)
    rows, problems = [], dict.fromkeys(cache.problems)
    for run_id, path in runs:
        try:
            run = open_run(path)
            events = {event.event for event in read_journal(path)}
        except (InputError, OSError) as error:
            problems[str(error)] = None
            continue
        cases = entries.get(path.name, [])
        planned = sum(entry["planned_repeats"] for entry in cases)
        measured = sum(len(entry["samples_per_s"]) for entry in cases)
        state = f"{measured} of {planned} repeats done"
        if measured >= planned:
            state = "complete"
        elif CANCELLED in events:
            state += ", cancelled"
        elif SUBMITTED not in events and not run.manifest.is_import:
            state = "not submitted"
        best, headline = _find_best(cases)
        rows.append(
            {
                "run_id": run_id,
                "path": str(run.path),
                "title": run.manifest.title or run.manifest.matrix_name,
                "site": run.manifest.site_name,
                "created_at": run.manifest.created_at,
                "age": _describe_age(run.manifest),
                "state": state,
                "planned_repeats": planned,
                "measured_repeats": measured,
                "best_case": best,
                "headline": headline,
            }
        )
    return rows, [*problems]


def _find_best(cases: Sequence[Row]) -> tuple[str, str]:
    """Return the id and the throughput of the fastest case, as text with unit: "1,705 images/s".

    It is of the run's first measured model; ("", "") without a measured case.
    """
    measured = [entry for entry in cases if len(entry["samples_per_s"])]
    if not measured:
        return "", ""
    model, unit = measured[0]["model"], measured[0]["unit"]
    samples = {e["case_id"]: e["samples_per_s"] for e in measured if e["model"] == model}
    best = max(samples, key=lambda case_id: median(samples[case_id]))
    interval = compute_median_interval(samples[best])
    return best, f"{Cell(median(samples[best]), interval=interval).text} {unit}"


def _describe_age(manifest: Manifest) -> str:
    """Format the time since a run was made: "5 min", "3 h" or "12 d"; "-" if it is unknown."""
    try:
        made = parse_time(manifest.created_at)
    except ValueError:
        return "-"
    minutes = max(0, int((datetime.now(timezone.utc) - made).total_seconds() // 60))
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} d"
