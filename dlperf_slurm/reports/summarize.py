"""Outcomes -> the tables of a run with their footnotes; all of them in cells, for every format."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import INFER, TRAIN
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.reports.findings import Finding, list_findings
from dlperf_slurm.reports.tables import (
    NO_CASE,
    ShownCase,
    accuracy,
    against,
    data,
    generation,
    latency,
    precision,
    ranks,
    resources,
    starts,
    throughput,
)
from dlperf_slurm.results.case_columns import make_case_columns
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import make_case_frame
from dlperf_slurm.results.neighbours import make_banner

if TYPE_CHECKING:
    from pandas import DataFrame

_OF_THROUGHPUT = (
    "Throughput: median over independent repeats of global batch size x measured steps / window "
    "of the slowest rank; in parentheses its 95 % interval. Speedup and efficiency: ratios of "
    "medians; in parentheses 95 % intervals, which hold together for all topologies of a column, "
    "and each by itself for other ratios. "
    "TFLOP/s: matrix products and convolutions of the model's definition, forward and backward, "
    "over the same time."
)


_WITHIN_ONE = (
    "The repeats of a case ran in one array job, close in time: intervals are of what varies "
    "within it, and say nothing of other nodes or another day (protocol.blocks)."
)
_OF_BLOCKS = (
    "Repeats were spread over array jobs at different times: medians and intervals are over the "
    "medians of these blocks."
)


@dataclass(frozen=True)
class Summary:
    """All tables of a run; `footnotes[n - 1]` is footnote n.

    Each case of training has its place in `throughput_tables`, each of inference in
    `latency_tables`; `precision_tables` show some of the former side by side, `against_tables` all
    of them beside published figures, when those were asked for. `data_tables` has what getting
    batches costs, `accuracy_tables` what trainings over epochs came to, `generation_tables` the
    phases of those cases of inference that generate, `rank_tables` the cases of
    several ranks, with who was slow, `resource_tables` what cases took of memory and energy,
    `start_tables` where the time went before their first step.
    All of them are views of `frame`, which has a row for each case (results.frame). `banner` says
    that machines were not quiet, and is empty where they were. `skipped_repeats` were left out for
    want of time, and are not among the planned ones.
    """

    manifest: Manifest
    throughput_tables: tuple[throughput.ThroughputTable, ...]
    precision_tables: tuple[precision.PrecisionTable, ...]
    latency_tables: tuple[latency.LatencyTable, ...]
    footnotes: tuple[str, ...]
    ok_repeats: int
    planned_repeats: int
    against_tables: tuple[against.AgainstTable, ...] = ()
    rank_tables: tuple[ranks.RankTable, ...] = ()
    resource_tables: tuple[resources.ResourceTable, ...] = ()
    start_tables: tuple[starts.StartTable, ...] = ()
    data_tables: tuple[data.DataTable, ...] = ()
    accuracy_tables: tuple[accuracy.AccuracyTable, ...] = ()
    generation_tables: tuple[generation.GenerationTable, ...] = ()
    frame: Any = field(default=None, compare=False, repr=False)
    banner: str = ""
    skipped_repeats: int = 0

    @cached_property
    def case_columns(self) -> "DataFrame":
        """The columns that files have of the cases: one frame for all, not to be changed."""
        return make_case_columns(self.frame)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What came out of the run; none where it was summarized without a frame."""
        return () if self.frame is None else list_findings(self.frame)

    @property
    def is_complete(self) -> bool:
        return self.ok_repeats == self.planned_repeats

    @property
    def method(self) -> str:
        """What the figures are, and what the intervals are about; logs do not tell the latter."""
        if self.manifest.is_import:
            return _OF_THROUGHPUT
        has_blocks = any(case.blocks > 1 for case in self.manifest.cases)
        return f"{_OF_THROUGHPUT} {_OF_BLOCKS if has_blocks else _WITHIN_ONE}"

    @property
    def measured(self) -> str:
        """How many of the planned repeats are there, and how many `--within` left out."""
        skipped = (
            f", {self.skipped_repeats} left out, as the time of --within was over"
            if self.skipped_repeats
            else ""
        )
        return f"{self.ok_repeats} of {self.planned_repeats} repeats measured{skipped}"

    @property
    def description(self) -> str:
        """One line under the title: which run, where, when, how much of it is there."""
        manifest = self.manifest
        version = f"{manifest.tool_version} {manifest.tool_git}".strip()
        if manifest.is_import:
            return (
                f"run {manifest.run_id} of logs made elsewhere, dlperf_slurm {version}, "
                f"{self.ok_repeats} of {self.planned_repeats} repeats are whole"
            )
        mended = f"; changed on the way: {'; '.join(manifest.mended)}" if manifest.mended else ""
        return (
            f"run {manifest.run_id}, site {manifest.site_name}, {manifest.created_at}, "
            f"dlperf_slurm {version}, {self.measured}{mended}"
        )


def summarize(
    manifest: Manifest, cases: Sequence[CaseOutcomes], sources: Sequence[str] = ()
) -> Summary:
    """Make the tables of a run, in the order of its matrix; InputError for an unknown source.

    Raises AssertionError when a case is not in its table, or is there twice.
    """
    frame = make_case_frame(cases)
    footnotes = Footnotes()
    summary = Summary(
        manifest=manifest,
        throughput_tables=throughput.make_throughput_tables(frame, footnotes),
        precision_tables=precision.make_precision_tables(frame, footnotes),
        data_tables=data.make_data_tables(frame, footnotes),
        accuracy_tables=accuracy.make_accuracy_tables(frame, footnotes),
        latency_tables=latency.make_latency_tables(frame, footnotes),
        generation_tables=generation.make_generation_tables(frame, footnotes),
        rank_tables=ranks.make_rank_tables(frame, footnotes),
        resource_tables=resources.make_resource_tables(frame, footnotes),
        start_tables=starts.make_start_tables(frame),
        footnotes=tuple(footnotes.texts),
        ok_repeats=sum(len(c.records) for c in cases),
        planned_repeats=sum(c.case.repeats - c.skipped_repeats for c in cases if not c.case.reason),
        skipped_repeats=sum(c.skipped_repeats for c in cases),
        against_tables=tuple(against.make_against_table(name, frame) for name in sources),
        frame=frame,
        banner=make_banner(cases),
    )
    check_places(summary, cases)
    return summary


def tabulate_run(summary: Summary, is_wide: bool = True) -> Iterator[Table]:
    """All tables of a run, in the order of a report; not wide they leave out what is least missed.

    These are the intervals of efficiencies, which are those of speedups per device, the speedups of
    latencies, and the step times by rank.
    """
    for throughput_table in summary.throughput_tables:
        yield throughput.tabulate_throughput(throughput_table, is_wide)
    yield from map(precision.tabulate_precision, summary.precision_tables)
    yield from map(data.tabulate_data, summary.data_tables)
    yield from map(accuracy.tabulate_accuracy, summary.accuracy_tables)
    for latency_table in summary.latency_tables:
        yield latency.tabulate_latency(latency_table, is_wide)
    yield from map(generation.tabulate_generation, summary.generation_tables)
    yield from map(against.tabulate_against, summary.against_tables)
    yield from map(resources.tabulate_resources, summary.resource_tables)
    yield from map(starts.tabulate_starts, summary.start_tables)
    for rank_table in summary.rank_tables:
        yield ranks.tabulate_ranks(rank_table)
        if is_wide:
            yield ranks.tabulate_rank_times(rank_table)


def check_places(summary: Summary, cases: Sequence[CaseOutcomes]) -> None:
    """Check that each case stands exactly once in the tables of its kind.

    Raises AssertionError, which names the others. Two cases that a table does not tell apart would
    fall into one cell, and one of them vanish from a report that counts the repeats of both.
    """
    training = [c for c in cases if c.case.axes.mode == TRAIN]
    columns = (column for table in summary.throughput_tables for column in table.columns)
    throughputs = (case for column in columns for case in column.cells)
    latencies = (case for table in summary.latency_tables for case in table.rows)
    accuracies = (case for table in summary.accuracy_tables for case in table.rows)
    generations = (case for table in summary.generation_tables for case in table.rows)
    _check_once("throughput", training, throughputs)
    _check_once("latency", [c for c in cases if c.case.axes.mode == INFER], latencies)
    _check_once("accuracy", [c for c in training if c.case.epochs], accuracies)
    _check_once("generation", [c for c in cases if c.case.axes.is_generation], generations)


def _check_once(kind: str, cases: Sequence[CaseOutcomes], shown: Iterable[ShownCase]) -> None:
    planned = Counter(c.case.case_id for c in cases)
    found = Counter(case.case_id for case in shown if case != NO_CASE)
    wrong = (planned - found) + (found - planned)
    if wrong:
        raise AssertionError(f"not exactly once in the {kind} tables: {', '.join(sorted(wrong))}")
