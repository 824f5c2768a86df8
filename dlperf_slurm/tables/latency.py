"""Outcomes of inference -> tables of throughput and latency by batch size, as NVIDIA's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.collect import CaseOutcomes
from dlperf_slurm.statistics import (
    Interval,
    Latency,
    find_latency,
    find_median,
    find_median_interval,
    find_median_latency,
)
from dlperf_slurm.tables import (
    VARIANT_AXES,
    Footnotes,
    choose_reference,
    find_batch_sizes,
    find_unit,
    list_samples_per_s,
    make_label,
    name_problem,
    number_footnotes,
)


@dataclass(frozen=True)
class LatencyRow:
    """One batch size at one precision: figures, or the problem that stands in their place.

    `latency` is in seconds, its median over the repeats; the batches of all ranks count alike.
    `latency_speedup` holds, in `latency`'s order, how many times longer the same batch size takes
    at the table's reference precision.
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
    latency: Optional[Latency]
    latency_speedup: Optional[tuple[float, ...]]
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
        key = (case.model, make_label(outcomes, VARIANT_AXES), case.topology)
        groups.setdefault(key, []).append(outcomes)
    return tuple(_make_table(key, group, footnotes) for key, group in groups.items())


def _make_table(
    key: tuple[str, str, str], cases: Sequence[CaseOutcomes], footnotes: Footnotes
) -> LatencyTable:
    model, label, topology = key
    reference = choose_reference({c.case.precision for c in cases if c.records})
    # sorts within a precision only: these keep the order of the matrix
    precisions = list(dict.fromkeys(c.case.precision for c in cases))
    ordered = sorted(
        cases, key=lambda c: (c.case.batch_size_per_device, precisions.index(c.case.precision))
    )
    measured = {c.case.batch_size_text: c for c in cases if c.case.precision == reference}
    return LatencyTable(
        model=model,
        label=label,
        compiler=cases[0].case.compiler,
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
    median = find_median(samples) if samples else None
    latency = _find_latency(outcomes)
    reference = references.get(case.batch_size_text)
    speedup, latency_speedup = _compare(median, latency, reference)
    return LatencyRow(
        case_id=case.case_id,
        precision=case.precision,
        batch_size=case.batch_size_text,
        batch_sizes=find_batch_sizes(outcomes),
        samples_per_s=tuple(samples),
        planned_repeats=0 if case.reason else case.repeats,
        median=median,
        interval=find_median_interval(samples),
        speedup=speedup,
        latency=latency,
        latency_speedup=latency_speedup,
        problem="" if samples else name_problem(outcomes),
        footnotes=number_footnotes(outcomes, footnotes),
    )


def _find_latency(outcomes: CaseOutcomes) -> Optional[Latency]:
    repeats = [find_latency(o.batch_seconds) for o in outcomes.outcomes if o.batch_seconds]
    return find_median_latency(repeats) if repeats else None


def _compare(
    median: Optional[float], latency: Optional[Latency], reference: Optional[CaseOutcomes]
) -> tuple[Optional[float], Optional[tuple[float, ...]]]:
    """Throughput over the reference's, and the reference's latencies over these."""
    base = _find_latency(reference) if reference is not None else None
    if median is None or latency is None or reference is None or base is None:
        return None, None
    speedup = median / find_median(list_samples_per_s(reference))
    return speedup, tuple(other / own for other, own in zip(base.values, latency.values))
