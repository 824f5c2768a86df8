"""Outcomes of training -> what getting the data costs, by where the data come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.contract.axes import ON_DEVICE
from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.cases import (
    VARIANT_AXES,
    find_unit,
    list_samples_per_s,
    make_label,
    name_problem,
    number_footnotes,
    number_ratio_footnotes,
)
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.stats.median import Interval, find_median
from dlperf_slurm.stats.rank_sum import find_ratio_interval
from dlperf_slurm.worker.clock import HostClock

_DATA_AXES = ("data", "data_workers", "prefetch_batches")

WAIT_UNKNOWN = (
    "how long devices waited for data is unknown: their hosts, whose waiting was timed, went for "
    "the next batch while a device may still have worked on the one before"
)

NOT_MEMORY = (
    "memory did not end the search for the largest batch size: the data set has too few samples "
    "for a step with a larger one, or it is the largest that is ever tried"
)


@dataclass(frozen=True)
class DataRow:
    """One case, medians over its repeats, or the problem in their place.

    `samples_per_s` is with the time that ranks waited for data (NVIDIA's total IPS),
    `computed_samples_per_s` without it (compute IPS), `waiting_share` that time over the window, of
    the rank that waited longest; both are None of logs, which do not tell, and where they would be
    the host's and not the device's (`is_wait_known`). `relative` is the throughput over that of the
    same case with its batch on the device, None where there is none; of that case there is no
    interval.
    """

    case_id: str
    label: str
    data: str
    data_workers: int
    prefetch_batches: int
    precision: str
    topology: str
    batch_size: str
    samples_per_s: Optional[float]
    computed_samples_per_s: Optional[float]
    waiting_share: Optional[float]
    relative: Optional[float]
    relative_interval: Optional[Interval]
    problem: str
    footnotes: tuple[int, ...]


@dataclass(frozen=True)
class DataTable:
    """The cases of one model whose batches come from somewhere, and those beside them."""

    model: str
    unit: str
    rows: tuple[DataRow, ...]

    @property
    def title(self) -> str:
        return f"{self.model}: where the data come from"


def make_data_tables(cases: Sequence[CaseOutcomes], footnotes: Footnotes) -> tuple[DataTable, ...]:
    """One table per model that has a case whose batches are not on the device already."""
    models: dict[str, list[CaseOutcomes]] = {}
    for outcomes in cases:
        models.setdefault(outcomes.case.model, []).append(outcomes)
    return tuple(
        DataTable(model, find_unit(model), _make_rows(group, footnotes))
        for model, group in models.items()
        if any(c.case.axes.data != ON_DEVICE for c in group)
    )


def _make_rows(cases: Sequence[CaseOutcomes], footnotes: Footnotes) -> tuple[DataRow, ...]:
    """The data sources of one case stand together."""
    groups: dict[tuple[str, ...], list[CaseOutcomes]] = {}
    for outcomes in cases:
        groups.setdefault(_find_key(outcomes), []).append(outcomes)
    rows: list[DataRow] = []
    for group in groups.values():
        on_device = [c for c in group if c.case.axes.data == ON_DEVICE]
        base = on_device[0] if on_device else None
        rows += [_make_row(outcomes, base, footnotes) for outcomes in group]
    return tuple(rows)


def _find_key(outcomes: CaseOutcomes) -> tuple[str, ...]:
    case = outcomes.case
    label = make_label(outcomes, set(VARIANT_AXES) - set(_DATA_AXES))
    return label, case.axes.precision, case.axes.topology, case.batch_size_text


def _make_row(
    outcomes: CaseOutcomes, base: Optional[CaseOutcomes], footnotes: Footnotes
) -> DataRow:
    case, records = outcomes.case, outcomes.records
    # logs of other people's scripts say nothing of waiting
    own = [record for record in records if not record.case.log_format]
    telling = [record for record in own if is_wait_known(record)]
    notes = [
        *([WAIT_UNKNOWN] if len(telling) < len(own) else []),
        *([NOT_MEMORY] if case.axes.is_largest_batch and any(map(_has_room, own)) else []),
    ]
    samples = list_samples_per_s(outcomes)
    base_samples = [] if base is None else list_samples_per_s(base)
    relative = (
        find_median(samples) / find_median(base_samples) if samples and base_samples else None
    )
    interval = None if base is outcomes else find_ratio_interval(base_samples, samples)
    numbers = number_footnotes(outcomes, footnotes)
    if relative is not None and base is not outcomes:
        numbers += number_ratio_footnotes(relative, interval, footnotes)
    return DataRow(
        case_id=case.case_id,
        label=_find_key(outcomes)[0],
        data=case.axes.data,
        data_workers=case.axes.data_workers,
        prefetch_batches=case.axes.prefetch_batches,
        precision=case.axes.precision,
        topology=case.axes.topology,
        batch_size=case.batch_size_text,
        samples_per_s=find_median(samples) if samples else None,
        computed_samples_per_s=(
            find_median([record.computed_samples_per_s for record in telling]) if telling else None
        ),
        waiting_share=find_median(list(map(find_waiting_share, telling))) if telling else None,
        relative=relative,
        relative_interval=interval,
        problem="" if records else name_problem(outcomes),
        footnotes=(*numbers, *map(footnotes.number, notes)),
    )


def is_wait_known(record: Record) -> bool:
    """Whether a device has nothing to do while its host waits for data.

    Steps by the host's clock end when the device is done, those by its events need not; nor does
    the device's work on a batch that is not the last of its step.
    """
    is_awaited = record.clock.name == HostClock.name and record.case.axes.gradient_accumulation == 1
    return is_awaited or record.case.axes.data == ON_DEVICE


def _has_room(record: Record) -> bool:
    """Whether no batch size that was tried was too large for the memory."""
    return not any(trial.is_out_of_memory for trial in record.batch_trials)


def find_waiting_share(record: Record) -> float:
    """How much of its window the rank that waited longest for data stood still."""
    return max(rank.data_wait_seconds / rank.window_seconds for rank in record.ranks)
