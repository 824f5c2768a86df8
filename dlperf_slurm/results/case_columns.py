"""The frame of cases -> the one that others read: a typed column for each axis and each number.

Its columns and their types do not depend on what was measured; what is not known is missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.matrix.axes import AXIS_SPECS
from dlperf_slurm.results.cases import list_ratio_notes
from dlperf_slurm.results.columns import (
    CASE_ID,
    COMPUTED,
    COUNT,
    DATA_WAITING,
    FLAG,
    MODEL,
    NUMBER,
    TEXT,
    THROUGHPUT,
    Column,
    declare_bounds,
    describe_latency,
    follow,
    make_frame,
)
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.results.latencies import CaseLatency
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.results.settings import declare_settings
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame

# an axis of other types has words too: "max"
_KINDS: dict[object, str] = {str: TEXT, int: COUNT, bool: FLAG}
# "max" and ladders are no numbers, and a dynamic loss scale is none
_SOURCES: Mapping[str, Any] = {
    "batch_size_per_device": lambda axes: str(axes.batch_size_per_device),
    "loss_scale": "constant_loss_scale",
}
_MISSING = {"loss_scale": "; missing where it is dynamic"}

# of a row, in the order of their notes
_RATIOS = (
    "speedup",
    "weak_scaling_efficiency",
    "precision_speedup",
    "relative_to_device_data",
    "train_speedup",
)


def _declare_axes() -> Iterator[Column]:
    types = {field.name: field.type for field in fields(Axes)}
    for axis in AXIS_SPECS:
        kind = COUNT if axis.name == "loss_scale" else _KINDS.get(types[axis.name], TEXT)
        meaning = axis.description[0].lower() + axis.description[1:].rstrip(".")
        meaning += _MISSING.get(axis.name, "")
        yield Column(axis.name, kind, axis.unit, meaning, _SOURCES.get(axis.name, ""))


def _declare_latencies() -> Iterator[Column]:
    for place, name in enumerate(LATENCY_NAMES):
        meaning = (
            f"{describe_latency(name)} of an inference batch, median over the repeats, or of all "
            "their batches together; missing where these are too few"
        )
        yield from declare_bounds(f"latency_{name}_ms", "ms", meaning, partial(_get_ms, place))
    for place, name in enumerate(LATENCY_NAMES):
        meaning = f"{describe_latency(name)} in `reference_precision` over this one"
        speedup = partial(_get_latency_speedup, place)
        yield from declare_bounds(f"latency_{name}_speedup", "ratio", meaning, speedup)


# the names of the columns, what they are of, and where a row has them
_PHASES = (
    ("ttft", "time to the first token behind the prompt", "generation.first_token"),
    ("tpot", "time per following token, mean over a generation", "generation.per_token"),
    ("itl", "time of each following token", "generation.between_tokens"),
)


def _declare_phases() -> Iterator[Column]:
    """Columns of generations: the mean, and the percentiles that are told of them elsewhere."""
    for name, meaning, path in _PHASES:
        for place, part in enumerate(LATENCY_NAMES):
            what = f"{describe_latency(part)}: {meaning}; of generations"
            find = partial(_get_phase_ms, path, place)
            yield from declare_bounds(f"{name}_{part}_ms", "ms", what, find)
    yield Column(
        *("prefill_tokens_per_s", NUMBER, "tokens/s"),
        "tokens of prompts over the mean time to the first token, of all ranks",
        "generation.prefill_tokens_per_s",
    )
    yield Column(
        *("decode_tokens_per_s", NUMBER, "tokens/s"),
        "following tokens over their mean time, of all ranks",
        "generation.decode_tokens_per_s",
    )
    yield Column(
        *("decode_gb_per_s", NUMBER, "10^9 bytes/s"),
        "what a decoding has to read of a device's memory, weights and cache, over its mean time",
        "generation.decode_gb_per_s",
    )
    yield Column(
        *("decode_bandwidth_share", NUMBER, "share of 1"),
        "`decode_gb_per_s` over `copied_gb_per_s`",
    )


def _get_phase_ms(path: str, place: int, row: CaseRow) -> Optional[Ratio]:
    latency: Optional[CaseLatency] = follow(row, path)
    return None if latency is None else _scale_to_ms(latency, place)


def _scale_to_ms(latency: CaseLatency, place: int) -> Ratio:
    return Ratio(latency.values[place], latency.intervals[place]).scale(1000)


def _get_ms(place: int, row: CaseRow) -> Optional[Ratio]:
    return None if row.latency is None else _scale_to_ms(row.latency, place)


def _get_latency_speedup(place: int, row: CaseRow) -> Optional[Ratio]:
    return row.latency_speedups[place] if row.latency_speedups else None


def _name_slowest_ranks(row: CaseRow) -> Optional[str]:
    spread = row.rank_spread
    return " ".join(map(str, spread.slowest.ranks)) if spread else None


def _join_notes(row: CaseRow) -> str:
    """What tables have as footnotes; why a case was left out has a column of its own."""
    of_ratios = (note for name in _RATIOS for note in list_ratio_notes(getattr(row, name)))
    notes = [*map(str, row.table_notes), *of_ratios, *row.data_notes, *row.usage_notes]
    notes += [*row.scaling_notes, *(row.latency.notes if row.latency else ())]
    notes += row.generation.notes if row.generation else ()
    return "; ".join(note for note in dict.fromkeys(notes) if note != row.reason)


CASES: tuple[Column, ...] = (
    CASE_ID,
    MODEL,
    *_declare_axes(),
    Column("batch_sizes_measured", TEXT, "samples", "what was measured, per device, ascending: "
        "several where repeats of a search found several",
        lambda row: " ".join(map(str, row.batch_sizes))),
    Column("batch_size_measured", COUNT, "samples", "the only one of `batch_sizes_measured`, per "
        "device, to sort and draw by; missing where there are several, or none",
        lambda row: row.batch_sizes[0] if len(row.batch_sizes) == 1 else None),
    Column("nodes", COUNT, "nodes", "of the topology"),
    Column("devices_per_node", COUNT, "devices", "of the topology"),
    Column("world_size", COUNT, "ranks", "nodes x devices_per_node: one rank per device"),
    Column("model_parameters", TEXT, "", "sizes of the model as JSON, as in its [model] table"),
    Column("parameter_count", COUNT, "parameters", "of the model that was measured",
        "first_record.parameter_count"),
    *declare_settings(),
    Column("hardware", TEXT, "", "devices of the first sound repeat, on how many nodes"),
    Column("unit", TEXT, "", "of the throughputs: images/s, sequences/s, ..."),
    Column("samples_per_s", NUMBER, THROUGHPUT, "throughput, median over the sound repeats"),
    Column("interval_low", NUMBER, THROUGHPUT, "lower end of the 95 % interval of the median; "
        "missing where repeats are too few for one", "interval.low"),
    Column("interval_high", NUMBER, THROUGHPUT, "upper end of the 95 % interval of the median",
        "interval.high"),
    Column("smallest", NUMBER, THROUGHPUT, "lowest throughput of any repeat",
        lambda row: min(row.samples, default=None)),
    Column("largest", NUMBER, THROUGHPUT, "highest throughput of any repeat",
        lambda row: max(row.samples, default=None)),
    Column("tokens_per_s", NUMBER, "tokens/s", "`samples_per_s` x the tokens of a sample; missing "
        "of models that are published in samples"),
    Column("repeats_measured", COUNT, "repeats", "with a sound record"),
    Column("repeats_planned", COUNT, "repeats", "asked for; 0 of a case that was left out"),
    Column("baseline", TEXT, "", "smallest topology measured: `speedup` is relative to it"),
    *declare_bounds("speedup", "ratio", "throughput over that of `baseline`"),
    *declare_bounds("weak_scaling_efficiency", "share of 1", "`speedup` per device over that of "
        "`baseline`, at the same batch size per device"),
    Column("tflops_per_device", NUMBER, "10^12 FLOP/s", "work that the model's definition asks "
        "for, over the time that it took, per device; of training"),
    Column("measured_peak_tflops", NUMBER, "10^12 FLOP/s", "rate that the framework's "
        "matrix product sustains on the device, measured on its node in the case's numbers",
        "reach.measured_tflops"),
    Column("published_peak_tflops", NUMBER, "10^12 FLOP/s", "peak of the device in its vendor's "
        "data sheet, without sparsity; missing of devices that are not known",
        "reach.published_tflops"),
    Column("measured_peak_share", NUMBER, "share of 1", "`tflops_per_device` over "
        "`measured_peak_tflops` (MFU)"),
    Column("published_peak_share", NUMBER, "share of 1", "`tflops_per_device` over "
        "`published_peak_tflops`"),
    Column("copied_gb_per_s", NUMBER, "10^9 bytes/s", "copy within the device's memory, read and "
        "written", "reach.copied_gb_per_s"),
    Column("all_reduce_gb_per_s", NUMBER, "10^9 bytes/s", "size of the gradients over the time in "
        "which all ranks sum so much", "reach.all_reduce_gb_per_s"),
    Column("reachable_efficiency", NUMBER, "share of 1", "weak-scaling efficiency of one device's "
        "step with the sum of gradients beside its backward pass, as far as that lasts"),
    Column("unoverlapped_efficiency", NUMBER, "share of 1", "the same with the sum of gradients "
        "after the step"),
    Column("reference_precision", TEXT, "", "fp32, or tf32 where that was not measured: "
        "`precision_speedup` is relative to it"),
    *declare_bounds("precision_speedup", "ratio", "throughput over that in `reference_precision`, "
        "at the same topology"),
    *_declare_latencies(),
    *_declare_phases(),
    COMPUTED,
    DATA_WAITING,
    *declare_bounds("relative_to_device_data", "ratio", "throughput over that of the same case "
        "whose batch is on the device"),
    Column("top1_average", NUMBER, "share of 1", "top-1 on the validation samples after the last "
        "epoch, mean over seeds", "accuracy.average"),
    Column("top1_deviation", NUMBER, "share of 1", "standard deviation (n - 1) over seeds",
        "accuracy.deviation"),
    Column("top1_lowest", NUMBER, "share of 1", "of all seeds",
        lambda row: min(row.accuracy.top1, default=None)),
    Column("top1_highest", NUMBER, "share of 1", "of all seeds",
        lambda row: max(row.accuracy.top1, default=None)),
    Column("epochs", NUMBER, "epochs", "that were run, median over seeds", "accuracy.epochs"),
    Column("seeds_at_target", COUNT, "seeds", "that reached the target; missing without one",
        "accuracy.reached"),
    Column("train_seconds", NUMBER, "s", "from the first step to the end of the last epoch's "
        "validation, median over seeds", "train_seconds"),
    *declare_bounds("train_speedup", "ratio", "time to train in the full precision over this one"),
    Column("imbalance", NUMBER, "ratio", "slowest rank's median step over the median rank's",
        "rank_spread.imbalance"),
    Column("waiting_share", NUMBER, "share of 1", "part of a step that ranks on average wait for "
        "the slowest one; of training", "rank_spread.waiting_share"),
    Column("slowest_host", TEXT, "", "host of the slowest rank", "rank_spread.slowest.host"),
    # one device may have had several ranks
    Column("slowest_rank", TEXT, "", "the slowest rank, by number; several where a device had "
        "another rank in another repeat", _name_slowest_ranks),
    Column("peak_memory_bytes", COUNT, "bytes", "the most that any rank took in any repeat",
        "usage.peak_memory_bytes"),
    Column("utilization", NUMBER, "share of 1", "use of the devices, mean over the window",
        "usage.utilization"),
    Column("power_watts", NUMBER, "W", "of all devices together, or of the CPUs of all hosts where "
        "these are the devices; median over the repeats", "usage.power_watts"),
    Column("samples_per_joule", NUMBER, "samples/J", "throughput over power",
        "usage.samples_per_joule"),
    Column("clock_mhz", NUMBER, "MHz", "clock of the devices, mean over them and the window",
        "usage.clock_mhz"),
    Column("least_clock_mhz", NUMBER, "MHz", "lowest sample of any device's clock",
        "usage.least_clock_mhz"),
    Column("own_cpu_share", NUMBER, "share of 1", "CPU time of all CPUs that the run took in the "
        "window, on the host and in the repeat of `other_cpu_share`", "cpu_shares.own"),
    Column("other_cpu_share", NUMBER, "share of 1", "CPU time of all CPUs that processes which are "
        "not the run's took in the window; the most on any host in any repeat", "cpu_shares.other"),
    Column("problem", TEXT, "", "why there is no figure: OOM, failed, invalid, missing, not run"),
    Column("reason", TEXT, "", "why the case was left out of the run; empty if it was not"),
    Column("notes", TEXT, "", "what tables have as footnotes, joined by semicolons", _join_notes),
)  # fmt: skip


def make_case_columns(frame: "DataFrame") -> "DataFrame":
    """The frame of `results.frame`, with the columns of CASES in their order."""
    return make_frame(CASES, list_rows(frame))
