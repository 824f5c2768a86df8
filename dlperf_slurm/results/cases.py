"""The outcomes of a run -> its results: the data frame `cases`, one row per planned case.

The columns are those of `results.case_columns`; ratios and notes are computed from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.matrix.settings import SETTINGS
from dlperf_slurm.results import notes
from dlperf_slurm.results.case_columns import CASES, aggregate_repeats
from dlperf_slurm.results.case_formulas import Cases
from dlperf_slurm.results.case_summary import RunFrames, make_run_frames, summarize_case
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.columns import TEXT, Column, select_published
from dlperf_slurm.results.labels import get_unit, list_axes
from dlperf_slurm.results.provenance import describe_outliers
from dlperf_slurm.results.repeats import REPEATS

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class Results:
    """The data frames of a run and the results computed from them.

    `cases` has one row per planned case, including hidden columns; `notes` has the columns case id,
    scope (which tables print the note) and note.
    """

    frames: RunFrames
    cases: "DataFrame"
    notes: "DataFrame"

    @cached_property
    def training(self) -> "DataFrame":
        """The rows of training cases; cached, because filtering a wide frame is slow."""
        return self.cases[self.cases["mode"] == TRAIN]

    @cached_property
    def inference(self) -> "DataFrame":
        """The rows of inference cases; cached."""
        return self.cases[self.cases["mode"] == INFER]

    @cached_property
    def case_columns(self) -> "DataFrame":
        """The columns of cases that are written to files; cached: do not modify the frame."""
        return select_published(CASE_TABLE, self.cases.assign(notes=_join_notes(self)))

    @property
    def repeat_columns(self) -> "DataFrame":
        """The columns of repeats that are written to files."""
        return select_published(REPEATS, self.frames.repeats)


# ratios with an interval of their own; the efficiency has that of the speedup
RATIOS = ("speedup", "precision_speedup", "relative_to_device_data", "train_speedup")


def analyze(outcomes: Sequence[CaseOutcomes]) -> Results:
    """Compute the results of a run from the outcomes of its cases."""
    frames = make_run_frames([*map(summarize_case, outcomes)])
    return analyze_frames([one.case for one in outcomes], frames)


def analyze_frames(planned: Sequence[PlannedCase], frames: RunFrames) -> Results:
    """Compute the results of a run from its data frames: cases, ratios and notes."""
    from pandas import DataFrame, concat

    plan = _make_plan(planned)
    valid = frames.repeats[frames.repeats.samples_per_s.notna()]
    cases = Cases(plan, frames, valid, aggregate_repeats(valid, plan.index))
    counts = valid.groupby("case_id").size()
    cases["repeats_measured"] = counts.reindex(plan.index, fill_value=0)
    values = cases.samples["samples_per_s"]
    cases["values_measured"] = [len(values.get(case_id, ())) for case_id in plan.index]
    for column in CASES:
        found = column.compute(cases)
        parts = found.items() if len(column.names) > 1 else [(column.name, found)]
        cases.update(zip(column.names, (values for _, values in parts)))
        # the declared type, even if no case has a value
        cases[column.name] = cases[column.name].astype(column.dtype)
    frame = DataFrame(cases)
    odd = describe_outliers(frames.facts, plan)
    added = [
        *((case_id, notes.TABLE, text) for case_id, text in odd.items()),
        *notes.describe_few_repeats(frame),
        *notes.describe_sizes(frame),
        *notes.describe_exceeded_peaks(frame),
        *notes.describe_pooled(frames.pooled),
        *notes.describe_slow_machines(frames.ranks),
        *(row for name in RATIOS for row in notes.describe_ratios(frame, name)),
    ]
    all_notes = concat([frames.notes, DataFrame(added, columns=frames.notes.columns)])
    return Results(frames, frame, all_notes)


def _make_plan(planned: Sequence[PlannedCase]) -> "DataFrame":
    """Build the data frame of the planned cases, by `case_id`, in the order of the matrix."""
    from pandas import DataFrame

    rows = []
    for case in planned:
        topology = parse_topology(case.axes.topology)
        values = {
            "case_id": case.case_id,
            "model": case.model,
            **list_axes(case.axes),
            **dict.fromkeys(SETTINGS),
            **case.settings,
            "planned_epochs": case.epochs,
            "planned_size": 0 if case.axes.has_batch_search else case.axes.batch_size,
            "fixed_batch_size": f"{case.axes.global_batch_size} (global)"
            if case.axes.global_batch_size
            else str(case.axes.batch_size_per_device),
            "has_batch_search": case.axes.has_batch_search,
            "nodes": topology.nodes,
            "devices_per_node": topology.devices_per_node,
            "world_size": topology.world_size,
            "unit": get_unit(case.model, case.unit),
            "repeats_planned": 0 if case.reason else case.repeats,
            "blocks": case.blocks,
            "reason": case.reason,
        }
        rows.append(values)
    frame = DataFrame(rows, columns=None if rows else PLANNED)
    dtypes = {c.name: c.dtype for c in CASES if c.name in frame}
    return frame.astype(dtypes).set_index("case_id", drop=False).rename_axis(None)


# the columns of a plan without cases
PLANNED = ["case_id", "model", *AXES, *SETTINGS, "planned_epochs", "planned_size",
    "fixed_batch_size", "has_batch_search", "nodes", "devices_per_node", "world_size", "unit",
    "repeats_planned", "reason"]  # fmt: skip


def _join_notes(results: Results) -> "Series":
    """Join the footnotes of each case with "; ", without that in the column `reason`."""
    from pandas import Series

    order: dict[object, int] = {scope: place for place, scope in enumerate(
        (notes.CASE, notes.DOUBT, notes.TABLE, *RATIOS, notes.DATA, notes.USAGE, notes.SCALING,
         notes.LATENCY, notes.GENERATION))}  # fmt: skip
    # without duplicates
    found: dict[str, dict[str, None]] = {case_id: {} for case_id in results.cases.index}
    own = results.notes[results.notes.scope.isin(order)]
    rows = sorted(zip(own.scope.map(order), own.case_id, own.note), key=lambda row: row[0])
    for _, case_id, note in rows:
        found[case_id][str(note)] = None
    joined = [
        "; ".join(text for text in own if text != reason)
        for own, reason in zip(found.values(), results.cases.reason)
    ]
    return Series(joined, index=results.cases.index, dtype=TEXT)


# the columns of files: all of CASES, and the notes as text
CASE_TABLE: tuple[Column, ...] = (
    *CASES,
    Column(
        "notes", TEXT, "", "footnotes of the case in the tables, joined by semicolons", _join_notes
    ),
)
