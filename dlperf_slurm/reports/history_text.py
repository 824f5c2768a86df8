"""Timelines -> tables with notes, and JSON."""

import dataclasses
import json
from collections.abc import Sequence

from dlperf_slurm.plain_text import count_things
from dlperf_slurm.reports.cells import Cell, Table, make_table
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.history.entries import describe_software
from dlperf_slurm.results.history.nodes import NodeHistory
from dlperf_slurm.results.history.timeline import Point, Timeline
from dlperf_slurm.results.number_formats import Number
from dlperf_slurm.results.significance import DEFAULT_MARGIN

SCHEMA_VERSION = 1

METHOD = (
    "throughput: median over repeats, with its 95 % interval; speed: over that of the last run "
    "before it that has a figure, with the interval of that ratio alone. Verdict: at 95 % for all "
    "runs of a case together (Fligner, Policello; Holm); equivalent: within "
    f"{100 * DEFAULT_MARGIN:g} %, by both one-sided tests"
)

# of a run id: 20240501-120000
TIME_CHARACTERS = 15

# of a note; JSON, CSV and Parquet have all
SHOWN_CHANGES = 8


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
    first, last = describe_software(measured[0]), describe_software(measured[-1])
    return f"with {first}" if first == last else f"first with {first}; last with {last}"


def describe_node(node: NodeHistory) -> str:
    """A node that failed or is slow, in a line."""
    words = []
    if node.failures:
        since = ", and has measured since" if node.has_measured_since else ""
        words.append(
            f"failed {count_things(node.failures, 'array task')}, last at {node.last_failed_at} "
            f"({node.last_reason}){since}"
        )
    slow = node.slow
    if slow is not None:
        words.append(
            f"was slowest in {slow.slowest_repeats} of {slow.repeats} comparisons with other nodes "
            f"at the same work, by {slow.excess:.1%}"
        )
    return f"node {node.node} of site {node.site_name}: {'; '.join(words)}"


def serialize_json(
    timelines: Sequence[Timeline], nodes: Sequence[NodeHistory], problems: Sequence[str]
) -> str:
    """All figures and facts in full precision, schema-versioned."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "timelines": [dataclasses.asdict(timeline) for timeline in timelines],
        "nodes": [{**dataclasses.asdict(node), "is_bad": node.is_bad} for node in nodes],
        "problems": list(problems),
    }
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"
