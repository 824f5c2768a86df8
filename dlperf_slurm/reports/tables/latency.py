"""Outcomes of inference -> tables of throughput and latency by batch size, as NVIDIA's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.results.cases import (
    VARIANT_AXES,
    choose_reference,
    find_batch_sizes,
    find_planned_batch_size,
    find_unit,
    list_samples_per_s,
    make_label,
    name_problem,
    number_footnotes,
    number_ratio_footnotes,
)
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.stats.median import (
    Interval,
    Latency,
    find_latency,
    find_median,
    find_median_interval,
    find_median_latency,
)
from dlperf_slurm.stats.rank_sum import find_ratio_interval


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


def make_latency_tables(
    cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> tuple[LatencyTable, ...]:
    """One table per model, framework with its variant, and topology, in the matrix's order."""
    groups: dict[tuple[str, str, str], list[CaseOutcomes]] = {}
    for outcomes in cases:
        case = outcomes.case
        key = (case.model, make_label(outcomes, VARIANT_AXES), case.axes.topology)
        groups.setdefault(key, []).append(outcomes)
    return tuple(_make_table(key, group, footnotes) for key, group in groups.items())


def _make_table(
    key: tuple[str, str, str], cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> LatencyTable:
    model, label, topology = key
    reference = choose_reference({c.case.axes.precision for c in cases if c.records})
    # sorts within a precision only: these keep the order of the matrix
    precisions = list(dict.fromkeys(c.case.axes.precision for c in cases))
    ordered = sorted(
        cases,
        key=lambda c: (find_planned_batch_size(c.case), precisions.index(c.case.axes.precision)),
    )
    measured = {c.case.batch_size_text: c for c in cases if c.case.axes.precision == reference}
    return LatencyTable(
        model=model,
        label=label,
        compiler=cases[0].case.axes.compiler,
        topology=topology,
        unit=find_unit(model),
        reference_precision=reference,
        rows=tuple(_make_row(c, measured, footnotes) for c in ordered),
    )


def _make_row(
    outcomes: CaseOutcomes, references: Mapping[str, CaseOutcomes], footnotes: Footnotes
) -> LatencyRow:
    case = outcomes.case
    samples = list_samples_per_s(outcomes)
    latencies = _list_latencies(outcomes)
    reference = references.get(case.batch_size_text)
    base = _list_latencies(reference) if reference is not None else []
    base_samples = list_samples_per_s(reference) if reference is not None else []
    is_compared = bool(latencies and base)
    numbers = number_footnotes(outcomes, footnotes)
    speedup = find_median(samples) / find_median(base_samples) if is_compared else None
    speedup_interval = None
    if speedup is not None and reference is not outcomes:
        speedup_interval = find_ratio_interval(base_samples, samples)
        numbers += number_ratio_footnotes(speedup, speedup_interval, footnotes)
    return LatencyRow(
        case_id=case.case_id,
        precision=case.axes.precision,
        batch_size=case.batch_size_text,
        batch_sizes=find_batch_sizes(outcomes),
        samples_per_s=tuple(samples),
        planned_repeats=0 if case.reason else case.repeats,
        median=find_median(samples) if samples else None,
        interval=find_median_interval(samples),
        speedup=speedup,
        speedup_interval=speedup_interval,
        repeat_latencies=tuple(latencies),
        latency=find_median_latency(latencies) if latencies else None,
        latency_intervals=tuple(map(find_median_interval, _list_values(latencies))),
        latency_speedup=_divide(base, latencies) if is_compared else None,
        latency_speedup_intervals=(
            tuple(map(find_ratio_interval, _list_values(latencies), _list_values(base)))
            if is_compared and reference is not outcomes
            else ()
        ),
        problem="" if samples else name_problem(outcomes),
        footnotes=numbers,
    )


def _list_latencies(outcomes: CaseOutcomes) -> list[Latency]:
    return [find_latency(o.batch_seconds) for o in outcomes.outcomes if o.batch_seconds]


def _list_values(latencies: Sequence[Latency]) -> list[tuple[float, ...]]:
    """Of each value of a latency those of all repeats."""
    return list(zip(*(latency.values for latency in latencies)))


def _divide(base: Sequence[Latency], latencies: Sequence[Latency]) -> tuple[float, ...]:
    """The reference's medians over these."""
    pairs = zip(find_median_latency(base).values, find_median_latency(latencies).values)
    return tuple(other / own for other, own in pairs)
