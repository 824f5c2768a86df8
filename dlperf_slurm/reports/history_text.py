"""Timelines -> tables with notes, JSON, CSV and Parquet."""

import csv
import dataclasses
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dlperf_slurm.errors import InputError
from dlperf_slurm.reports.cells import Cell, Number, Table, make_table
from dlperf_slurm.results.database import open_database
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.history.catalogue import insert_rows
from dlperf_slurm.results.history.entries import Entry
from dlperf_slurm.results.history.timeline import Point, Timeline
from dlperf_slurm.results.same_work import Facts

SCHEMA_VERSION = 1

METHOD = (
    "throughput: median over repeats, with its 95 % interval; speed: over that of the last run "
    "before it that has a figure, with the interval of that ratio alone. Verdict: rank-sum test "
    "(Mann, Whitney), at 95 % for all runs of a case together (Holm)"
)

# of a run id: 20240501-120000
TIME_CHARACTERS = 15

# of a note; JSON, CSV and Parquet have all
SHOWN_CHANGES = 8

# facts of the machine that are software too
_DRIVERS = ("gpu_driver", "cuda_driver")


def tabulate_timeline(timeline: Timeline, notes: Footnotes) -> Table:
    """One row per run, the oldest first; notes say what changed, and what failed."""
    return make_table(
        title=timeline.title,
        header=("run", timeline.unit, "speed / before", "verdict"),
        rows=[
            (name, *_make_cells(point, notes))
            for name, point in zip(_shorten_run_ids(timeline), timeline.points)
        ],
        text_columns=1,
        caption=_describe_ends(timeline),
    )


def _shorten_run_ids(timeline: Timeline) -> list[str]:
    """The time that ids begin with, if it tells the runs apart: commands take it for the id."""
    run_ids = [point.entry.run_id for point in timeline.points]
    times = [run_id[:TIME_CHARACTERS] for run_id in run_ids]
    return times if len(set(times)) == len(run_ids) else run_ids


def _make_cells(point: Point, notes: Footnotes) -> tuple[Cell, ...]:
    texts = [point.entry.problem] if point.entry.problem else []
    comparison = point.comparison
    if comparison is not None:
        texts += [comparison.reason] if comparison.reason else []
        texts += [_join_changes(comparison.changes)] if comparison.changes else []
    marks = tuple(map(notes.number, texts))
    if point.median is None:
        none = Cell(None, problem="none")
        return Cell(None, problem=point.entry.state, notes=marks), none, none
    count, planned = len(point.entry.samples_per_s), point.entry.planned_repeats
    return (
        Cell(
            point.median,
            interval=point.interval,
            repeats=(count, planned) if count < planned else None,
        ),
        Cell(
            comparison.speed_ratio if comparison else None,
            Number(".3f"),
            comparison.interval if comparison else None,
            problem="none",
        ),
        Cell(comparison.verdict if comparison else "first", notes=marks),
    )


def _join_changes(changes: Sequence[str]) -> str:
    more = len(changes) - SHOWN_CHANGES
    rest = [f"and {more} more (--json)"] if more > 0 else []
    return "; ".join([*changes[:SHOWN_CHANGES], *rest])


def _describe_ends(timeline: Timeline) -> str:
    """The software of the first run with a figure, and of the last one."""
    measured = [point.entry for point in timeline.points if point.median is not None]
    if not measured:
        return "no run of this case has a figure"
    first, last = _describe_software(measured[0]), _describe_software(measured[-1])
    return f"with {first}" if first == last else f"first with {first}; last with {last}"


def _describe_software(entry: Entry) -> str:
    drivers = {name: entry.surroundings[name] for name in _DRIVERS if name in entry.surroundings}
    return _join_facts({**entry.versions, **drivers, "dlperf_slurm": [entry.tool]})


def _join_facts(facts: Facts) -> str:
    return ", ".join(f"{name} {' and '.join(values)}" for name, values in facts.items())


def list_lines(timelines: Sequence[Timeline]) -> Iterator[dict[str, Any]]:
    """One flat line per case and run, for CSV and Parquet: figures in full, texts joined."""
    for timeline in timelines:
        for point in timeline.points:
            yield _describe_point(timeline, point)


def _describe_point(timeline: Timeline, point: Point) -> dict[str, Any]:
    entry, comparison = point.entry, point.comparison
    ratio_interval = comparison.interval if comparison else None
    return {
        "case_id": entry.case_id,
        "parameters": entry.parameters,
        "framework": entry.framework,
        "model": entry.model,
        "topology": entry.topology,
        "precision": entry.precision,
        "batch_size": entry.batch_size,
        "mode": entry.mode,
        "script": entry.script,
        "run_id": entry.run_id,
        "run_dir": entry.run_dir,
        "created_at": entry.created_at,
        "site": entry.site_name,
        "unit": timeline.unit,
        "samples_per_s": point.median,
        "interval_low": point.interval.low if point.interval else None,
        "interval_high": point.interval.high if point.interval else None,
        "repeats_measured": len(entry.samples_per_s),
        "repeats_planned": entry.planned_repeats,
        "speed_ratio": comparison.speed_ratio if comparison else None,
        "speed_ratio_low": ratio_interval.low if ratio_interval else None,
        "speed_ratio_high": ratio_interval.high if ratio_interval else None,
        "p_value": comparison.p_value if comparison else None,
        "verdict": comparison.verdict if comparison else "",
        "reason": comparison.reason if comparison else "",
        "changes": "; ".join(comparison.changes) if comparison else "",
        "software": _describe_software(entry),
        "state": entry.state,
        "problem": entry.problem,
    }


COLUMN_TYPES = {
    **dict.fromkeys(("repeats_measured", "repeats_planned"), "INTEGER"),
    **dict.fromkeys(
        (
            "samples_per_s",
            "interval_low",
            "interval_high",
            "speed_ratio",
            "speed_ratio_low",
            "speed_ratio_high",
            "p_value",
        ),
        "DOUBLE",
    ),
}


def serialize_json(timelines: Sequence[Timeline], problems: Sequence[str]) -> str:
    """All figures and facts in full precision, schema-versioned."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "timelines": [dataclasses.asdict(timeline) for timeline in timelines],
        "problems": list(problems),
    }
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"


def serialize_csv(timelines: Sequence[Timeline]) -> str:
    """RFC 4180, one line per case and run."""
    buffer = io.StringIO()
    lines = list(list_lines(timelines))
    writer = csv.DictWriter(buffer, [*lines[0]], lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(lines)
    return buffer.getvalue()


def write_parquet(timelines: Sequence[Timeline], path: Path) -> None:
    """The columns of the CSV, typed; InputError when the file cannot be written."""
    import duckdb

    lines = list(list_lines(timelines))
    columns = ", ".join(f"{name} {COLUMN_TYPES.get(name, 'VARCHAR')}" for name in lines[0])
    # DuckDB takes an address of the web for a file too, a path with a folder never
    target = str(path.absolute()).replace("'", "''")
    with open_database() as connection:
        connection.execute(f"CREATE TABLE history ({columns})")
        insert_rows(connection, "history", [[*line.values()] for line in lines])
        try:
            connection.execute(f"COPY history TO '{target}' (FORMAT parquet)")
        except duckdb.Error as error:
            raise InputError(f"--parquet: {str(error).splitlines()[0]}") from error
