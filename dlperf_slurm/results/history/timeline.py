"""Results folders -> the history of each case: results of each run, changes, and regressions.

A timeline is the entries of one case with the same model sizes, from the oldest run to the newest.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from dlperf_slurm.errors import InputError
from dlperf_slurm.files.archive_lookup import ARCHIVE_SUFFIX
from dlperf_slurm.plain_text import list_some, matches_pattern
from dlperf_slurm.results.columns import (
    COUNT,
    NUMBER,
    TEXT,
    TIME,
    Column,
    compute_columns,
    copy_column,
    make_frame_of_values,
)
from dlperf_slurm.results.columns import THROUGHPUT as OWN_UNIT
from dlperf_slurm.results.comparability import (
    describe_changes,
    describe_tool_changes,
    find_other_work,
)
from dlperf_slurm.results.compare import (
    PAIR,
    THROUGHPUT,
    decide_pairs,
    declare_speed_ratio,
    share_case_column,
)
from dlperf_slurm.results.history.entries import describe_software
from dlperf_slurm.results.history.run_cache import read_facts, read_run_cache
from dlperf_slurm.results.labels import IDENTITY, number_groups
from dlperf_slurm.results.samples import summarize_samples
from dlperf_slurm.results.significance import DEFAULT_MARGIN
from dlperf_slurm.stats.median import compute_median

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# Runs are comparable only if these are equal. Versions may differ: they may cause regressions.
_MACHINE = (
    "case.device",
    "devices",
    "cpu_model",
    "gpu_models",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_PARTITION",
)

# the maximum number of case ids in an error message
SHOWN_CASES = 5

# a row of a data frame, with its columns as attributes
Row = Any


class SelectedHistory(NamedTuple):
    """The rows of `make_history`; `problems` says which runs or files were left out, and why."""

    rows: "DataFrame"
    problems: Sequence[str]


def drop_copies(entries: "DataFrame") -> "tuple[DataFrame, list[str]]":
    """Drop the entries of copied runs: runs with the same id in another directory.

    Returns the others, and a line per dropped copy. The first directory that is named after the run
    stays, else the first one: whoever may write into the folder cannot put another in its place.
    """
    places = [*zip(entries.run_id[::-1], entries.run_dir[::-1])]
    named = {
        run_id: path
        for run_id, path in places
        if Path(path).name in (run_id, f"{run_id}{ARCHIVE_SUFFIX}")
    }
    original = entries.run_id.map({**dict(places), **named})
    is_copy = original != entries.run_dir
    pairs = dict.fromkeys(zip(entries.run_dir[is_copy], original[is_copy]))
    return entries[~is_copy], [f"{copy}: left out, as it is a copy of {of}" for copy, of in pairs]


def read_history(
    folders: Sequence[Path], patterns: Sequence[str], frameworks: Sequence[str]
) -> SelectedHistory:
    """Read the history of the selected cases from all runs in these results folders.

    A case is selected if its id matches any of `patterns` and its framework is one of `frameworks`;
    no patterns or no frameworks select all. A pattern without `*`, `?` and `[` matches anywhere in
    the id. Raises InputError if no case is selected.
    """
    from pandas import concat

    caches = [read_run_cache(folder) for folder in dict.fromkeys(folders)]
    entries, copies = drop_copies(concat([found.entries for found in caches]))
    problems = [*(problem for found in caches for problem in found.problems), *copies]
    is_selected = [
        (not patterns or matches_pattern(case_id, patterns))
        and (not frameworks or framework in frameworks)
        for case_id, framework in zip(entries.case_id, entries.framework)
    ]
    if not any(is_selected):
        case_ids = sorted(set(entries.case_id))
        reason = "contains no runs; name another folder of runs"
        if case_ids:
            reason = f"no case matches; the cases are {list_some(case_ids, SHOWN_CASES)}"
        raise InputError("\n".join([f"{', '.join(map(str, folders))}: {reason}", *problems]))
    return SelectedHistory(make_history(entries[is_selected]), problems)


def make_history(entries: "DataFrame") -> "DataFrame":
    """Sort entries by case, model sizes and time, and compare each run with the one before.

    Columns are added to those of the entries. `timeline` numbers the combinations of case and
    sizes; `sizes` describes the sizes of the model if the case id occurs with several; `median` and
    the ends of its 95 % interval are in `unit`. The columns of `compare.decide_pairs` compare a
    run, as B, with the last earlier run that has a figure, as A; `samples_a` and `verdict` are
    empty for the first run and for runs without a figure. Verdicts are adjusted for all runs of a
    timeline (Holm).
    """
    from pandas import concat

    rows = entries.sort_values(["case_id", "created_at", "run_id"], kind="stable")
    # a run without a figure has no sizes: assume those of the run before it, or after it
    known = rows.parameters.mask(rows.parameters == "").groupby(rows.case_id)
    known = known.ffill().groupby(rows.case_id).bfill().fillna("")
    rows = rows.assign(sizes=known)
    rows["timeline"] = number_groups(rows, ["case_id", "sizes"])
    rows = rows.sort_values("timeline", kind="stable").reset_index(drop=True)
    has_several = rows.groupby("case_id").timeline.transform("nunique") > 1
    rows["sizes"] = [
        _format_sizes(sizes) if is_one_of else ""
        for sizes, is_one_of in zip(rows.sizes, has_several)
    ]
    measured = {place: own for place, own in rows.samples_per_s.items() if own}
    summary = summarize_samples(measured, rows.index)
    rows = rows.assign(
        median=summary["median"], interval_low=summary["low"], interval_high=summary["high"]
    )
    before: dict[int, Row] = {}
    pairs = []
    # arrays of pandas types take five times as long to iterate over
    for row in rows.astype(object).itertuples():
        pairs.append(_pair(before.get(row.timeline) if row.samples_per_s else None, row))
        if row.samples_per_s:
            before[row.timeline] = row
    rows = concat([rows, make_frame_of_values(PAIR, pairs)], axis=1)
    found = decide_pairs(rows, limit=None, group="timeline")
    return found.assign(verdict=found.verdict.where(found.samples_a.map(len) > 0, ""))


def _format_sizes(parameters: str) -> str:
    """Format the JSON of model parameters: "layers 12, hidden 768", or "default sizes"."""
    sizes = json.loads(parameters or "{}")
    return ", ".join(f"{name} {value}" for name, value in sizes.items()) or "default sizes"


def _pair(a: Row, b: Row, reason: str = "") -> tuple[object, ...]:
    """Return the values of the columns PAIR: samples of entries `a` and `b`, reason, changes etc.

    `a` is the earlier entry, None without a comparison; `reason` then says why, and is "" for the
    first run.
    """
    if a is None:
        return THROUGHPUT, "repeats", (), () if reason else b.samples_per_s, reason, [], ""
    provenance = read_facts(a.provenance), read_facts(b.provenance)
    tools = ((one.tool, one.site_name) for one in (a, b))
    return (
        *(THROUGHPUT, "repeats", a.samples_per_s, b.samples_per_s),
        find_other_work(read_facts(a.work), read_facts(b.work)),
        [*describe_changes(*provenance), *describe_tool_changes(*tools)],
        "",
    )


def get_timeline_title(case_id: str, sizes: str) -> str:
    """Return the title of a timeline: the case id, and the model sizes if `sizes` is not empty."""
    return f"{case_id} ({sizes})" if sizes else case_id


def compare_newest(history: "DataFrame", limit: Optional[float], window: int) -> "DataFrame":
    """Compare each case of the newest run with the median of up to `window` earlier runs.

    Earlier runs must have done the same work on the same machine; of two median runs the slower one
    is used. `limit` is the allowed slowdown, such as 0.05, or None. Returns a row per case with
    IDENTITY, `reference` (the earlier run's id, or "" if there is none) and the columns of
    `compare.decide_pairs`. Cases without earlier runs are left out. Verdicts are adjusted for all
    cases (Holm).
    """
    newest = max(zip(history.created_at, history.run_id), default=None)
    guarded = []
    for _, runs in history.groupby("timeline"):
        *earlier, last = runs.itertuples()
        if earlier and newest == (last.created_at, last.run_id):
            guarded.append(_compare_last(last, earlier, window))
    pairs = make_frame_of_values({**IDENTITY, "reference": TEXT, **PAIR}, guarded)
    return decide_pairs(pairs, limit, limit or DEFAULT_MARGIN)


def _compare_last(last: Row, earlier: Sequence[Row], window: int) -> tuple[object, ...]:
    """Return the values of IDENTITY, `reference` and PAIR for the last run of a timeline.

    The reference is the median run of the last `window` comparable ones among `earlier`.
    """
    identity = [getattr(last, name) for name in IDENTITY]
    if not last.samples_per_s:
        return *identity, "", *_pair(None, last, f"no valid record: {last.problem}")
    alike = [entry for entry in earlier if entry.samples_per_s and _is_alike(entry, last)]
    if not alike:
        reason = "no earlier run had the same workload on the same hardware"
        return *identity, "", *_pair(None, last, reason)
    ordered = sorted(alike[-window:], key=lambda entry: compute_median(entry.samples_per_s))
    reference = ordered[(len(ordered) - 1) // 2]
    return *identity, reference.run_id, *_pair(reference, last)


def _is_alike(entry: Row, last: Row) -> bool:
    """Return whether two entries are of the same work on the same machine (facts _MACHINE)."""
    here, there = read_facts(entry.provenance), read_facts(last.provenance)
    return not find_other_work(read_facts(entry.work), read_facts(last.work)) and all(
        here.get(name) == there.get(name) for name in _MACHINE
    )


def _describe_software(history: "DataFrame") -> "Series":
    """Return a text with the software versions of each row (see `describe_software`)."""
    from pandas import Series

    facts = zip(history.versions, history.provenance, history.tool)
    return Series([describe_software(*own) for own in facts], index=history.index, dtype=TEXT)


HISTORY: tuple[Column, ...] = (
    *map(share_case_column, list(IDENTITY)[:-1]),
    copy_column("parameters", TEXT, "", "parameters of the model as JSON; empty if no record has "
        "them"),
    copy_column("run_id", TEXT, "", "id of the run, which begins with its date and time"),
    copy_column("run_dir", TEXT, "", "directory of the run"),
    copy_column("created_at", TIME, "", "when the run was created, in UTC"),
    Column("site", TEXT, "", "name of the site", itemgetter("site_name")),
    share_case_column("unit"),
    replace(share_case_column("samples_per_s"), compute=itemgetter("median")),
    copy_column("interval_low", NUMBER, OWN_UNIT, "lower end of the 95 % interval of the median; "
        "missing if there are too few repeats for an interval"),
    copy_column("interval_high", NUMBER, OWN_UNIT, "upper end of the 95 % interval of the median"),
    replace(share_case_column("repeats_measured"),
        compute=lambda history: history.samples_per_s.map(len)),
    Column("repeats_planned", COUNT, "repeats", "number of planned repeats",
        itemgetter("planned_repeats")),
    declare_speed_ratio("throughput divided by that of the previous run with a result for the "
        "case"),
    copy_column("p_value", NUMBER, "", "p-value of the rank-sum test, adjusted for all runs of the "
        "case (Holm)"),
    copy_column("verdict", TEXT, "", "speed compared with the previous run that has a result: "
        "faster, slower, equivalent, undecided, not comparable; empty for the first run"),
    copy_column("reason", TEXT, "", "why there is no verdict on the speed; empty if there is a "
        "verdict"),
    Column("changes", TEXT, "", "what else differs from the previous run, besides the speed; "
        "joined by semicolons", lambda history: history.changes.map("; ".join)),
    Column("software", TEXT, "", "versions of packages, drivers and this tool", _describe_software),
    copy_column("state", TEXT, "", "why the run has no result: OOM, failed, invalid, missing"),
    copy_column("problem", TEXT, "", "problems of the repeats; empty if no repeat has one"),
)  # fmt: skip


def make_history_frame(history: "DataFrame") -> "DataFrame":
    """Build the data frame to write to files: a row per case and run, each case from the oldest."""
    return compute_columns(HISTORY, history)
