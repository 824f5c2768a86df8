"""The history of cases over runs -> tables with notes, and JSON.

A history is the data frame of `make_history`; a timeline has its rows of one case and model size.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from dlperf_slurm.plain_text import count_things
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.comparison_text import list_facts, list_matrix_values
from dlperf_slurm.reports.formats.json import serialize_document
from dlperf_slurm.reports.tables import ShownColumn, TableSpec, read_intervals, tabulate_rows
from dlperf_slurm.results.columns import list_records, list_values
from dlperf_slurm.results.compare import Row
from dlperf_slurm.results.history.entries import describe_software
from dlperf_slurm.results.history.nodes import NodeHistory
from dlperf_slurm.results.history.run_cache import ENTRIES, FACTS, read_facts
from dlperf_slurm.results.history.timeline import get_timeline_title
from dlperf_slurm.results.number_formats import ScaledFormat
from dlperf_slurm.results.significance import DEFAULT_MARGIN

if TYPE_CHECKING:
    from pandas import DataFrame

METHOD = (
    "throughput: median over repeats, with its 95 % interval; speed: throughput divided by that of "
    "the previous run with a result, with a 95 % interval for this ratio only. Verdict: 95 % "
    "confidence for all runs of a case together (Fligner-Policello test, Holm correction); "
    f"equivalent: differs by less than {100 * DEFAULT_MARGIN:g} % (two one-sided tests)"
)

# length of the time at the start of a run id: 20240501-120000
TIME_CHARACTERS = 15

# changes per footnote; JSON, CSV and Parquet list all
SHOWN_CHANGES = 8


def tabulate_history(history: "DataFrame") -> tuple[list[Table], tuple[str, ...]]:
    """Return a table per timeline, with a row per run from the oldest, and the footnotes' texts.

    A timeline is a case with one set of model sizes. Footnotes list failures, and changes of
    software and machine. `history` is from `make_history`.
    """
    return _tabulate(_TIMELINES, history)


def tabulate_newest(history: "DataFrame") -> tuple[list[Table], tuple[str, ...]]:
    """Return a table per unit with the newest run of each timeline (case), and the footnotes."""
    counts = history.groupby("timeline").run_id.transform("size")
    newest = history.assign(runs=counts).drop_duplicates("timeline", keep="last")
    tables, notes = _tabulate(_NEWEST, newest.reset_index(drop=True))
    # on a narrow terminal speed and verdict stay
    return [replace(table, omit_first=(1, 2, 3)) for table in tables], notes


def _tabulate(spec: TableSpec, rows: "DataFrame") -> tuple[list[Table], tuple[str, ...]]:
    return tabulate_rows(
        spec, rows, zip(rows.problem, rows.reason, rows.changes.map(_join_changes))
    )


def _list_titles(rows: "DataFrame") -> list[str]:
    return [*map(get_timeline_title, rows.case_id, rows.sizes)]


def _shorten_run_ids(history: "DataFrame") -> list[str]:
    """Shorten run ids to their times ("20240501-120000") in timelines where all times differ.

    Commands accept this prefix too.
    """
    times = history.run_id.str[:TIME_CHARACTERS]
    is_twice = times.groupby([history.timeline, times]).transform("size") > 1
    return list(times.mask(is_twice.groupby(history.timeline).transform("any"), history.run_id))


def _make_median_cells(history: "DataFrame") -> list[Cell]:
    """Make cells of the median throughput, or of the run's state if it has none."""
    counts = zip(history.samples_per_s.map(len), history.planned_repeats)
    intervals = read_intervals(history, ("interval_low", "interval_high"))
    return [
        Cell(
            median,
            interval=interval,
            repeats=(count, planned) if 0 < count < planned else None,
            notes=notes if median is None else (),
            problem=state,
        )
        for median, interval, (count, planned), notes, state in zip(
            list_values(history["median"]), intervals, counts, history.marks, history.state
        )
    ]


def _make_verdict_cells(history: "DataFrame") -> list[Cell]:
    """Make cells of the verdict against the earlier run; "first" for the oldest run."""
    return [
        Cell(None if count == 0 else verdict or "first", notes=notes if count else ())
        for verdict, count, notes in zip(
            history.verdict, history.samples_per_s.map(len), history.marks
        )
    ]


def _join_changes(changes: Sequence[str]) -> str:
    """Join texts with "; ": the first SHOWN_CHANGES, and the number of the others."""
    more = len(changes) - SHOWN_CHANGES
    rest = [f"and {more} more changes (see --json)"] if more > 0 else []
    return "; ".join([*changes[:SHOWN_CHANGES], *rest])


def _describe_ends(runs: "DataFrame") -> str:
    """Describe the software of the first and the last run with a result in a timeline."""
    measured = runs[runs["median"].notna()]
    if measured.empty:
        return "no run has a result for this case"
    facts = [measured[name].iloc[[0, -1]] for name in ("versions", "provenance", "tool")]
    first, last = (describe_software(*own).split(", ") for own in zip(*facts))
    common = [name for name in first if name in last]
    changed = [", ".join(n for n in names if n not in common) for names in (first, last)]
    words = zip(("with", "first", "last"), (", ".join(common), *changed))
    return "; ".join(f"{word} {text}" for word, text in words if text)


def _list_figures(rows: "DataFrame") -> list[ShownColumn]:
    return [
        ShownColumn("median", "{unit}", cells=_make_median_cells),
        ShownColumn("speed_ratio", "speed / previous run", ScaledFormat(".3f"), "none"),
        ShownColumn("verdict", cells=_make_verdict_cells, missing="none"),
    ]


_TIMELINES = TableSpec(
    "history",
    by=("timeline",),
    title=lambda runs: _list_titles(runs[:1])[0],
    words=lambda rows: [ShownColumn("run", cells=_shorten_run_ids)],
    figures=_list_figures,
    caption=_describe_ends,
)

_NEWEST = TableSpec(
    "newest",
    by=("unit",),
    title="newest run of each case",
    words=lambda rows: [
        ShownColumn("case", cells=_list_titles),
        ShownColumn("run", cells=lambda rows: [name[:TIME_CHARACTERS] for name in rows.run_id]),
    ],
    figures=lambda rows: [ShownColumn("runs", None, ScaledFormat(".0f")), *_list_figures(rows)],
    caption="to print all runs of a case: --case PATTERN; all runs of all cases: --all",
)


def describe_node(node: NodeHistory) -> str:
    """Describe a node that failed or is slow, in one line with counts and the last reason."""
    words = []
    if node.failures:
        since = ", and has produced results since" if node.has_measured_since else ""
        words.append(
            f"failed {node.failures} of {count_things(node.failures + node.measured, 'array task')}"
            f", last at {node.last_failed_at} ({node.last_reason}){since}"
        )
    slow = node.slow
    if slow is not None:
        words.append(
            f"was the slowest in {slow.slowest_repeats} of {slow.repeats} comparisons with other "
            f"nodes on the same work, by {slow.excess:.1%}"
        )
    return f"node {node.node} of site {node.site_name}: {'; '.join(words)}"


def serialize_json(
    history: "DataFrame", nodes: Sequence[NodeHistory], problems: Sequence[str]
) -> str:
    """Serialize a history as JSON, with all numbers in full precision.

    `nodes` are those that failed or are slow; `problems` are lines on runs that could not be read.
    """
    timelines: dict[int, dict[str, Any]] = {}
    for row in list_records(history):
        names = {"case_id": row["case_id"], "parameters": row["sizes"], "unit": row["unit"]}
        timeline = timelines.setdefault(row["timeline"], {**names, "points": []})
        timeline["points"].append(_list_point(row))
    data = {
        "timelines": [*timelines.values()],
        "nodes": [{**asdict(node), "is_bad": node.is_bad} for node in nodes],
        "problems": list(problems),
    }
    return serialize_document(data)


def _list_point(row: Row) -> dict[str, Any]:
    """Make the JSON object of one run of a timeline: entry, median, interval and comparison.

    The interval is None if unknown, the comparison without a verdict.
    """
    ends = {end: row[f"interval_{end}"] for end in ("low", "high")}
    return {
        "entry": {
            **{name: row[name] for name in ENTRIES},
            **{name: read_facts(row[name]) for name in FACTS},
            **list_matrix_values(row),
        },
        "median": row["median"],
        "interval": None if ends["low"] is None else ends,
        "comparison": list_facts(row) if row["verdict"] else None,
    }
