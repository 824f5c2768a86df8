"""Results -> a summary of a run: its tables in cells with footnotes, for every format."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from dlperf_slurm.contract.record import OK
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.reports.cells import Table
from dlperf_slurm.reports.headline import Headline, list_findings
from dlperf_slurm.reports.tables import (
    FootnoteMarks,
    inference,
    join_subject,
    machines,
    tabulate,
    training,
)
from dlperf_slurm.results.cases import Results
from dlperf_slurm.results.interference import make_banner
from dlperf_slurm.results.model_hardware import describe_devices

if TYPE_CHECKING:
    from pandas import DataFrame

# makes an additional table from the data frame of cases
TableMaker = Callable[["DataFrame"], Table]
_OF_THROUGHPUT = (
    "Throughput: global batch size x number of measured steps, divided by the time of the slowest "
    "rank for these steps; median over independent repeats, with its 95 % confidence interval in "
    "parentheses. Speedup and efficiency: ratios of these medians, with 95 % confidence intervals "
    "in parentheses. The intervals of one scaling curve have a joint confidence of 95 %; any other "
    "interval has an individual confidence of 95 %. TFLOP/s: operations in the matrix products and "
    "convolutions of the model's definition, forward and backward, divided by the time of the "
    "slowest rank."
)
_WITHIN_ONE = (
    "The repeats of a case ran close in time, in one array job: intervals cover the variation "
    "within this job, not between nodes or days (see protocol.blocks)."
)
_OF_BLOCKS = (
    "Repeats were spread over array jobs at different times (blocks): medians and intervals are "
    "computed from the medians of these blocks."
)


# after the tables of throughput and precision
_OF_CASES = (training.SOURCES, training.ACCURACY, inference.LATENCIES, inference.GENERATIONS)
# behind those of published results; footnotes of ranks are numbered first
_OF_MACHINES = (machines.RESOURCES, machines.ALL_REDUCES, machines.STARTS, machines.RANK_SPREADS,
    machines.RANK_TIMES)  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """The results of a run as tables; `footnotes[n - 1]` is footnote n.

    `against` are the tables that compare cases with published results, if requested. `banner` is a
    warning about other users of the machines, or "". `ok_repeats` is the number of repeats with a
    valid record. `skipped_repeats` were not run, because the time limit of `submit --within` was
    reached, and do not count as planned.
    """

    manifest: Manifest
    results: Results = field(compare=False, repr=False)
    marks: FootnoteMarks = field(compare=False, repr=False)
    tables: tuple[Table, ...]
    against: tuple[Table, ...]
    ok_repeats: int
    planned_repeats: int
    skipped_repeats: int = 0
    banner: str = ""

    @property
    def footnotes(self) -> tuple[str, ...]:
        return tuple(self.marks.footnotes.texts)

    @cached_property
    def findings(self) -> tuple[Headline, ...]:
        """The main findings of the run, in sentences, and warnings."""
        return list_findings(self.results)

    @property
    def is_complete(self) -> bool:
        """Whether all planned repeats have a valid record."""
        return self.ok_repeats == self.planned_repeats

    @property
    def method(self) -> str:
        """How results are computed and, unless logs were imported, what intervals include."""
        if self.manifest.is_import:
            return _OF_THROUGHPUT
        has_blocks = any(case.blocks > 1 for case in self.manifest.cases)
        return f"{_OF_THROUGHPUT} {_OF_BLOCKS if has_blocks else _WITHIN_ONE}"

    @property
    def measured(self) -> str:
        """The number of measured, planned and skipped repeats, in words."""
        skipped = (
            f", {self.skipped_repeats} not run, as the time limit of --within had passed"
            if self.skipped_repeats
            else ""
        )
        return f"{self.ok_repeats} of {self.planned_repeats} repeats measured{skipped}"

    @cached_property
    def subject(self) -> str:
        """What was measured on what: models with their sizes, devices, site and date."""
        manifest, cases = self.manifest, self.results.cases
        place = "imported logs" if manifest.is_import else f"site {manifest.site_name}"
        words = [
            " and ".join(dict.fromkeys(cases.model_title)),
            describe_devices(cases),
            place,
            manifest.created_at[:10],
        ]
        return ", ".join(filter(None, words))

    @property
    def description(self) -> str:
        """The line below the title: `subject`, run id, version and measured repeats."""
        manifest = self.manifest
        version = f"{manifest.tool_version} {manifest.tool_git}".strip()
        if manifest.is_import:
            return (
                f"{self.subject}; run {manifest.run_id}, dlperf_slurm {version}, "
                f"{self.ok_repeats} of {self.planned_repeats} repeats are complete"
            )
        amended = (
            f"; changed after submission: {'; '.join(manifest.amended)}" if manifest.amended else ""
        )
        return (
            f"{self.subject}; run {manifest.run_id}, dlperf_slurm {version}, "
            f"{self.measured}{amended}"
        )


def summarize(manifest: Manifest, results: Results, makers: Sequence[TableMaker] = ()) -> Summary:
    """Make the tables of a run, in the order of its matrix, and the additional ones of `makers`.

    Raises AssertionError if labels are ambiguous: two rows of a throughput table have the same.
    """
    repeats = results.frames.repeats
    marks = FootnoteMarks(results.notes.itertuples(index=False))
    against = tuple(make(results.cases) for make in makers)
    devices = describe_devices(results.cases)
    return Summary(
        manifest=manifest,
        results=results,
        marks=marks,
        tables=tuple(
            replace(table, subject=join_subject(table.subject or devices, manifest.created_at))
            for table in _make_tables(results, marks, against)
        ),
        against=against,
        ok_repeats=int((repeats.status == OK).sum()),
        planned_repeats=len(repeats),
        skipped_repeats=int(results.cases.repeats_planned.sum()) - len(repeats),
        banner=make_banner(repeats),
    )


def _make_tables(
    results: Results, marks: FootnoteMarks, against: Sequence[Table]
) -> tuple[Table, ...]:
    """Make all tables in the order of a report; `against` come before those of machines."""
    throughputs = [*tabulate(training.THROUGHPUT, results, marks)]
    _check_rows_differ(throughputs)
    precisions = [
        training.make_precision_table(rows, marks)
        for _, rows in results.training.groupby("precision_table")
    ]
    numbered = (*_OF_CASES, machines.RANK_SPREADS, *_OF_MACHINES)
    found = {spec: [*tabulate(spec, results, marks)] for spec in dict.fromkeys(numbered)}
    of_cases, of_machines = (
        [table for spec in specs for table in found[spec]] for specs in (_OF_CASES, _OF_MACHINES)
    )
    return (*throughputs, *precisions, *of_cases, *against, *of_machines)


def _check_rows_differ(tables: Iterable[Table]) -> None:
    """Raise AssertionError if two rows of a table have the same labels: a label lacks an axis."""
    for table in tables:
        names = Counter(
            ", ".join(cell.text for cell in row[: table.text_columns]) for row in table.rows
        )
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise AssertionError(
                f"{table.title}: several rows have the same labels: {'; '.join(twice)}"
            )
