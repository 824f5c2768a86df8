"""Outcomes -> one pandas frame, a row per planned case: its axes, its figures, what to note.

The columns are the fields of CaseRow, as Python's own values. `results.case_columns` makes of it
the frame that others read, with a column of numbers for each number.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.record import Record
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.matrix.settings import Settings
from dlperf_slurm.results.accuracy import Accuracy, find_accuracy, find_train_seconds
from dlperf_slurm.results.cases import (
    describe_hardware,
    find_batch_sizes,
    find_tokens_per_sample,
    find_unit,
    list_notes,
    name_problem,
)
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.data_waits import find_computed_rate, find_waiting_share, is_wait_known
from dlperf_slurm.results.footnotes import Note
from dlperf_slurm.results.generations import GenerationLatency, find_generation_latency
from dlperf_slurm.results.latencies import CaseLatency, find_case_latency
from dlperf_slurm.results.neighbours import CpuShares, find_cpu_shares
from dlperf_slurm.results.peaks import (
    Reach,
    add_reachable,
    find_reach,
    find_tflops,
    list_peak_notes,
    take_share,
)
from dlperf_slurm.results.provenance import describe_differences
from dlperf_slurm.results.rank_times import RankSpread, find_rank_spread
from dlperf_slurm.results.ratios import NO_RATIO, Ratio, add_ratios
from dlperf_slurm.results.stability import describe_stability
from dlperf_slurm.results.starts import Start, find_start, unite_starts
from dlperf_slurm.results.usage import Usage, find_usage, is_usage_known, list_usage_notes
from dlperf_slurm.stats.median import (
    Interval,
    Latency,
    compute_median_interval,
    count_needed_samples,
    find_median,
)

if TYPE_CHECKING:
    from pandas import DataFrame

WAIT_UNKNOWN = (
    "how long devices waited for data is unknown: their hosts, whose waiting was timed, went for "
    "the next batch while a device may still have worked on the one before"
)

NOT_MEMORY = (
    "memory did not end the search for the largest batch size: the data set has too few samples "
    "for a step with a larger one, or it is the largest that is ever tried"
)

AXES = tuple(f.name for f in fields(Axes))


@dataclass(frozen=True)
class CaseRow(Axes):
    """A case as it was planned, and what was measured of it, over its sound repeats.

    `samples` are their throughputs, `units` those that are independent of each other (medians of
    blocks, where repeats are spread over these), `samples_per_s` is the median of the latter.
    `batch_size_text` is as the matrix has it, `batch_sizes` were measured, per device: one, unless
    repeats of a search found several. A case with `epochs` trains to accuracy; `reason` says
    why one was left out. `settings` has what is told of its protocol, by the names of a matrix.
    `tflops_per_device` is the work that the model's definition asks for (10^12 floating-point
    operations, `flops_per_sample` of forward and backward pass) over the time that it took;
    `reach` is what its devices could do.

    `latencies` are those of each repeat of inference, where the batches of all ranks count alike;
    `latency` is that of the case, and `generation` that of the phases of its generations.

    `computed_samples_per_s` is the throughput without the time that ranks waited for data,
    `data_waiting_share` that time over the window, of the rank that waited longest; both are None
    of logs, which do not tell, and where they would be the host's and not the device's.

    `start` has the medians over the repeats of how long each phase before the window took.

    Ratios are over the `baseline`, the smallest topology measured; over `reference_precision`;
    over the same case with its data on the device. `latency_speedups` and `train_speedup` say how
    many times longer the reference takes.

    `case_notes` are for any layout, `table_notes` for tables, which have an interval to show.
    """

    case_id: str = ""
    model: str = ""
    epochs: int = 0
    reason: str = ""
    settings: Settings = field(default_factory=dict)
    nodes: int = 0
    devices_per_node: int = 0
    batch_size_text: str = ""
    batch_sizes: tuple[int, ...] = ()
    first_record: Optional[Record] = None
    hardware: str = ""
    unit: str = ""
    samples: tuple[float, ...] = ()
    units: tuple[float, ...] = ()
    tokens_per_sample: Optional[int] = None
    repeats_planned: int = 0
    samples_per_s: Optional[float] = None
    interval: Optional[Interval] = None
    baseline: str = ""
    speedup: Ratio = NO_RATIO
    scaling_notes: tuple[str, ...] = ()
    weak_scaling_efficiency: Ratio = NO_RATIO
    tflops_per_device: Optional[float] = None
    reach: Reach = field(default_factory=Reach)
    reachable_efficiency: Optional[float] = None
    unoverlapped_efficiency: Optional[float] = None
    precision_table: Optional[int] = None
    reference_precision: str = ""
    precision_speedup: Ratio = NO_RATIO
    latencies: tuple[Latency, ...] = ()
    latency: Optional[CaseLatency] = None
    generation: Optional[GenerationLatency] = None
    latency_speedups: tuple[Ratio, ...] = ()
    computed_samples_per_s: Optional[float] = None
    data_waiting_share: Optional[float] = None
    data_notes: tuple[str, ...] = ()
    relative_to_device_data: Ratio = NO_RATIO
    accuracy: Accuracy = field(default_factory=Accuracy)
    all_train_seconds: tuple[float, ...] = ()
    train_speedup: Ratio = NO_RATIO
    rank_spread: Optional[RankSpread] = None
    usage: Usage = field(default_factory=Usage)
    is_usage_known: bool = False
    cpu_shares: CpuShares = field(default_factory=CpuShares)
    usage_notes: tuple[str, ...] = ()
    start: Start = field(default_factory=Start)
    problem: str = ""
    case_notes: tuple[Note, ...] = ()
    table_notes: tuple[Note, ...] = ()

    @property
    def train_seconds(self) -> Optional[float]:
        """The time to train; None where no repeat was a training to accuracy."""
        return find_median(self.all_train_seconds)

    @property
    def repeats_measured(self) -> int:
        return len(self.samples)

    @property
    def tokens_per_s(self) -> Optional[float]:
        """The throughput in tokens; None for a model whose throughput is told in samples alone."""
        if self.samples_per_s is None or self.tokens_per_sample is None:
            return None
        return self.samples_per_s * self.tokens_per_sample

    @property
    def measured_peak_share(self) -> Optional[float]:
        """The model's work over what a device reaches in a matrix product (MFU)."""
        return take_share(self.tflops_per_device, self.reach.measured_tflops)

    @property
    def published_peak_share(self) -> Optional[float]:
        """The model's work over what the device's vendor publishes."""
        return take_share(self.tflops_per_device, self.reach.published_tflops)

    @property
    def decode_bandwidth_share(self) -> Optional[float]:
        """What decodings have to read over what a copy in the device's memory reads and writes."""
        needed = self.generation.decode_gb_per_s if self.generation else None
        return take_share(needed, self.reach.copied_gb_per_s)

    @property
    def model_parameters(self) -> Optional[str]:
        """The sizes of the model as JSON; None where no record tells them."""
        if self.first_record is None:
            return None
        return json.dumps(self.first_record.case.model_parameters, sort_keys=True)

    @property
    def planned_size(self) -> int:
        """The batch size per device that the matrix names; 0 where the job has to find it."""
        return 0 if self.has_batch_search else self.batch_size


_COLUMNS = tuple(f.name for f in fields(CaseRow))


def list_axes(axes: Axes) -> dict[str, Any]:
    """The value on each axis, by the names in AXES."""
    return {name: getattr(axes, name) for name in AXES}


def make_case_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """A row for each planned case, left out or not, in the order of the matrix."""
    from pandas import DataFrame

    differences = describe_differences(cases)
    rows = [_find_row(c, differences.get(c.case.case_id, ())) for c in cases]
    frame = DataFrame([vars(row) for row in rows], columns=[*_COLUMNS], dtype=object)
    add_ratios(frame, AXES)
    add_reachable(frame, AXES)
    return frame


def list_rows(frame: "DataFrame") -> list[CaseRow]:
    """The rows of a frame, or of a part of one, in their order."""
    return [CaseRow(*values) for values in frame[[*_COLUMNS]].to_numpy().tolist()]


def make_plain_row(outcomes: CaseOutcomes) -> CaseRow:
    """The row without what takes time, or other cases: the plan and the throughput."""
    case, records = outcomes.case, outcomes.records
    topology = parse_topology(case.axes.topology)
    samples = tuple(record.samples_per_s for record in records)
    return CaseRow(
        **list_axes(case.axes),
        case_id=case.case_id,
        model=case.model,
        epochs=case.epochs,
        reason=case.reason,
        settings=case.settings,
        nodes=topology.nodes,
        devices_per_node=topology.devices_per_node,
        batch_size_text=case.batch_size_text,
        batch_sizes=find_batch_sizes(outcomes),
        first_record=records[0] if records else None,
        unit=find_unit(case.model),
        samples=samples,
        units=outcomes.units,
        tokens_per_sample=find_tokens_per_sample(records),
        repeats_planned=0 if case.reason else case.repeats,
        samples_per_s=find_median(outcomes.units),
        interval=compute_median_interval(outcomes.units),
        problem="" if samples else name_problem(outcomes),
    )


def make_row(outcomes: CaseOutcomes, doubts: Sequence[Note]) -> CaseRow:
    """The row without what takes other cases; the doubts are those of `describe_stability`."""
    case, records = outcomes.case, outcomes.records
    row = make_plain_row(outcomes)
    latencies = tuple(outcome.latency for outcome in outcomes.outcomes if outcome.latency)
    own = [record for record in records if record.case.log_format is None]
    notes = list_notes(outcomes, doubts)
    tflops = find_tflops(records, row.samples_per_s)
    return replace(
        row,
        hardware=describe_hardware(outcomes),
        tflops_per_device=tflops,
        reach=find_reach(outcomes.outcomes),
        latencies=latencies,
        latency=find_case_latency(outcomes),
        generation=find_generation_latency(outcomes),
        computed_samples_per_s=find_median(outcomes.unite_records(find_computed_rate)),
        data_waiting_share=find_median(map(find_waiting_share, records)),
        data_notes=(
            *([WAIT_UNKNOWN] if not all(map(is_wait_known, own)) else []),
            *([NOT_MEMORY] if case.axes.is_largest_batch and any(map(_has_room, own)) else []),
        ),
        accuracy=find_accuracy(records),
        all_train_seconds=outcomes.unite_records(find_train_seconds),
        rank_spread=find_rank_spread(outcomes),
        usage=find_usage(records),
        is_usage_known=is_usage_known(records),
        cpu_shares=find_cpu_shares(outcomes.outcomes),
        usage_notes=(
            *list_usage_notes(records),
            *map(str, list_peak_notes(outcomes.outcomes, tflops)),
        ),
        start=unite_starts(map(find_start, outcomes.outcomes)),
        case_notes=tuple(notes),
    )


def _find_row(outcomes: CaseOutcomes, differences: Sequence[str]) -> CaseRow:
    """The row with the notes of tables, which tell how the case differs from others too."""
    reduced = outcomes.reduced
    row = reduced.row if reduced else make_row(outcomes, describe_stability(outcomes))
    notes = dict.fromkeys([*row.case_notes, *differences, *_describe_few(outcomes, row.units)])
    return replace(row, table_notes=tuple(notes))


def _describe_few(outcomes: CaseOutcomes, units: Sequence[float]) -> list[str]:
    """Why the median of a case has no interval."""
    if not 0 < len(units) < count_needed_samples():
        return []
    what = "blocks of repeats" if outcomes.has_blocks else "repeats"
    return [
        f"a 95 % interval takes {count_needed_samples()} {what}; in braces the smallest and the "
        "largest value"
    ]


def _has_room(record: Record) -> bool:
    """Whether no batch size that was tried was too large for the memory."""
    return not any(trial.is_out_of_memory for trial in record.batch_trials)
