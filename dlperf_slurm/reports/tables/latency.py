"""A frame of cases -> tables of throughput and latency of inference by batch size, as NVIDIA's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.results.cases import VARIANT_AXES, list_ratio_notes, make_label
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.stats.median import Interval, Latency

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class LatencyRow:
    """One batch size at one precision: figures, or the problem that stands in their place.

    `repeat_latencies` are those of each repeat, in seconds, where the batches of all ranks count
    alike; `latency` has the median over repeats of each of their values, `latency_intervals` what
    is known of these medians. `latency_speedup` holds, in `latency`'s order, how many times longer
    the same batch size takes at the table's reference precision; its intervals are empty where
    there is nothing to compare. An interval is None where the repeats are too few for it.
    """

    case_id: str
    precision: str
    batch_size: str
    batch_sizes: tuple[int, ...]
    samples_per_s: tuple[float, ...]
    planned_repeats: int
    median: Optional[float]
    interval: Optional[Interval]
    speedup: Optional[float]
    speedup_interval: Optional[Interval]
    repeat_latencies: tuple[Latency, ...]
    latency: Optional[Latency]
    latency_intervals: tuple[Optional[Interval], ...]
    latency_speedup: Optional[tuple[float, ...]]
    latency_speedup_intervals: tuple[Optional[Interval], ...]
    problem: str
    footnotes: tuple[int, ...]


@dataclass(frozen=True)
class LatencyTable:
    """Batch sizes x precisions of one model, framework (with its variant) and topology.

    `reference_precision` is what speedups are relative to; empty when there is none.
    """

    model: str
    label: str
    compiler: str
    topology: str
    unit: str
    reference_precision: str
    rows: tuple[LatencyRow, ...]

    @property
    def title(self) -> str:
        return f"{self.model} inference: {self.label}, {self.topology}"


def make_latency_tables(frame: "DataFrame", footnotes: Footnotes) -> tuple[LatencyTable, ...]:
    """One table per model, framework with its variant, and topology, in the matrix's order."""
    tables = frame[frame["mode"] == INFER].groupby("precision_table")
    return tuple(_make_table(list_rows(cases), footnotes) for _, cases in tables)


def _make_table(rows: list[CaseRow], footnotes: Footnotes) -> LatencyTable:
    first = rows[0]
    # sorts within a precision only: these keep the order of the matrix
    precisions = list(dict.fromkeys(row.precision for row in rows))
    rows = sorted(rows, key=lambda row: (row.planned_size, precisions.index(row.precision)))
    return LatencyTable(
        model=first.model,
        label=make_label(first, VARIANT_AXES),
        compiler=first.compiler,
        topology=first.topology,
        unit=first.unit,
        reference_precision=first.reference_precision,
        rows=tuple(_make_row(row, footnotes) for row in rows),
    )


def _make_row(row: CaseRow, footnotes: Footnotes) -> LatencyRow:
    speedup, speedups = row.precision_speedup, row.latency_speedups
    is_compared = speedup.value is not None
    return LatencyRow(
        case_id=row.case_id,
        precision=row.precision,
        batch_size=row.batch_size_text,
        batch_sizes=row.batch_sizes,
        samples_per_s=row.samples,
        planned_repeats=row.repeats_planned,
        median=row.samples_per_s,
        interval=row.interval,
        speedup=speedup.value,
        speedup_interval=speedup.interval,
        repeat_latencies=row.latencies,
        latency=row.latency,
        latency_intervals=row.latency_intervals,
        latency_speedup=tuple(ratio.value or 0.0 for ratio in speedups) if is_compared else None,
        latency_speedup_intervals=(
            tuple(ratio.interval for ratio in speedups)
            if is_compared and not speedup.is_of_itself
            else ()
        ),
        problem=row.problem,
        footnotes=footnotes.number_all([*row.table_notes, *list_ratio_notes(speedup)]),
    )
