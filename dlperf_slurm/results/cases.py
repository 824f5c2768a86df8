"""The frames of a run -> `cases`: a row for each planned case, measured or not.

CASES declares every column once. A column is computed from the plan, from the repeats of the case
(`groupby`), from its samples (median with an interval), or from columns before it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from statistics import stdev
from typing import TYPE_CHECKING, Any, Optional, get_args

from dlperf_slurm.config.key_descriptions import list_docstrings
from dlperf_slurm.contract.axes import INFER, TRAIN, Axes
from dlperf_slurm.contract.record import OK
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.matrix.axes import AXES, AXIS_SPECS
from dlperf_slurm.matrix.settings import USES
from dlperf_slurm.matrix.tables import Protocol
from dlperf_slurm.results import notes, ratios
from dlperf_slurm.results.case_summary import RunFrames, make_run_frames
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.columns import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    THROUGHPUT,
    Column,
    select_published,
    with_bounds,
)
from dlperf_slurm.results.labels import find_unit, number_groups
from dlperf_slurm.results.number_formats import COUNT as WHOLE
from dlperf_slurm.results.number_formats import (
    NO_REFERENCE,
    PERCENT,
    RATIO,
    SHARE,
    UNKNOWN,
    Duration,
    Number,
)
from dlperf_slurm.results.peaks import BACKWARD_SHARE, TERA
from dlperf_slurm.results.provenance import describe_differences
from dlperf_slurm.results.repeats import (
    COMPUTED_MEANING,
    LATENCIES,
    PHASES,
    REPEATS,
    WAITING_MEANING,
    describe_latency,
)
from dlperf_slurm.results.samples import make_samples, summarize_samples
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# columns of a case by their names, those that are computed so far
Cases = dict[str, "Series"]

OCCUPIED = Number(".0f", 100)

# of which each case has the median over its samples
SAMPLED = (
    "samples_per_s", "computed_samples_per_s", "train_seconds",
    *(f"{name}_{part}_seconds" for name in LATENCIES for part in LATENCY_NAMES),
)  # fmt: skip

# by the end of a setting's name; a seed has none
SETTING_UNITS = {
    "repeats": "repeats",
    "blocks": "array jobs",
    "_steps": "steps",
    "batch_size_step": "samples",
    "_mib_per_device": "MiB",
    "_seconds": "s",
}


@dataclass
class Below:
    """What cases are computed from, all by `case_id`: the plan, the repeats, and their samples."""

    frames: RunFrames
    plan: "DataFrame"
    samples: "Series"
    sound: "DataFrame"
    medians: "DataFrame"
    _aggregates: dict[str, "DataFrame"] = field(default_factory=dict)

    def summarize(self, quantity: str) -> "DataFrame":
        """Return median, interval, range and count of a quantity, by case."""
        return self._medians[quantity]

    @cached_property
    def _medians(self) -> "dict[str, DataFrame]":
        wide = self.medians.unstack("quantity").reindex(self.plan.index)
        wide = wide.swaplevel(axis=1).sort_index(axis=1)
        missing = self.medians.iloc[:0].droplevel("quantity").reindex(self.plan.index)
        known = wide.columns.get_level_values("quantity").unique()
        return {name: wide[name] if name in known else missing for name in SAMPLED}

    def aggregate(self, how: str) -> "DataFrame":
        """Aggregate, once, those columns of repeats that CASES asks for so; by case."""
        if how not in self._aggregates:
            found = (column.compute for column in CASES)
            names = {one.column for one in found if isinstance(one, OverRepeats) and one.how == how}
            columns = self.sound[["case_id", *sorted(names)]]
            if how == FIRST:
                grouped = columns.drop_duplicates("case_id").set_index("case_id")
            else:
                grouped = columns.groupby("case_id", sort=False).agg(how)
            self._aggregates[how] = grouped.reindex(self.plan.index)
        return self._aggregates[how]

    @cached_property
    def values(self) -> dict[str, dict[str, list[float]]]:
        """The samples of each quantity, by case."""
        found: dict[str, dict[str, list[float]]] = {quantity: {} for quantity in SAMPLED}
        for (case_id, quantity, _), value in zip(self.samples.index, self.samples.tolist()):
            found[quantity].setdefault(case_id, []).append(value)
        return found

    def make_frame(self, cases: Cases, *names: str) -> "DataFrame":
        """Return the plan with these columns beside it, to group by."""
        return self.plan.assign(**{name: cases[name] for name in names})


Compute = Callable[[Cases, Below], Any]

# an aggregate: of the first sound repeat
FIRST = "first"


# what columns are computed from


def planned(name: str) -> Compute:
    """Take a column of the plan: what the matrix has."""
    return lambda cases, below: below.plan[name]


@dataclass(frozen=True)
class OverRepeats:
    """Aggregate a column of the valid repeats: "max", "median", ..., or FIRST."""

    column: str
    how: str

    def __call__(self, cases: Cases, below: Below) -> "Series":
        return below.aggregate(self.how)[self.column]


def median_of(quantity: str, factor: float = 1.0) -> Compute:
    """Compute the median over samples, times the factor: [value, low, high, min, max]."""
    parts = ["median", "low", "high", "min", "max"]
    return lambda cases, below: factor * below.summarize(quantity)[parts]


def plain_median_of(quantity: str) -> Compute:
    """Compute the median over samples alone."""
    return lambda cases, below: below.summarize(quantity)["median"]


def ratio_to(quantity: str, bases: str, is_time: bool = False, together: str = "") -> Compute:
    """Divide the samples by those of the baseline: [value, low, high, is_own]."""

    def compute(cases: Cases, below: Below) -> "DataFrame":
        points = cases[together] if together else None
        return ratios.take_ratios(below.values[quantity], cases[bases], is_time, points)

    return compute


def baseline(find: "Callable[[DataFrame], Series]", *names: str) -> Compute:
    """Find the case id of the baseline of each case."""
    return lambda cases, below: find(below.make_frame(cases, "repeats_measured", *names))


def formula(compute: "Callable[[Cases], Any]") -> Compute:
    """Compute from columns of the same case that are declared before."""
    return lambda cases, below: compute(cases)


def times(name: str, factor: "Callable[[Cases], Series]") -> Compute:
    """Multiply a ratio and its interval by a positive number: [value, low, high, is_own]."""

    def compute(cases: Cases, below: Below) -> "DataFrame":
        from pandas import DataFrame

        by = factor(cases)
        parts = {part: cases[part] * by for part in (name, *with_bounds(name))}
        return DataFrame({**parts, "is_own": cases[f"{name}_is_own"]})

    return compute


# declarations of columns that are alike


def declare_median(
    name: str,
    unit: str,
    meaning: str,
    compute: Compute,
    bounds: Optional[tuple[str, str]] = None,
    **printed: Any,
) -> Column:
    """Declare a median with its interval and its range; files do not have the latter."""
    return Column(
        name, NUMBER, unit, meaning, compute, bounds or with_bounds(name),
        extremes=(f"{name}_min", f"{name}_max"), **printed,
    )  # fmt: skip


def declare_ratio(name: str, unit: str, meaning: str, compute: Compute, **printed: Any) -> Column:
    """Declare a ratio with its interval."""
    printed.setdefault("missing", NO_REFERENCE)
    return Column(
        name, NUMBER, unit, meaning, compute, with_bounds(name), hidden=(f"{name}_is_own",),
        **printed,
    )  # fmt: skip


def declare_hidden(name: str, dtype: str, compute: Compute, **printed: Any) -> Column:
    """Declare a column for others, or for tables, that files do not have."""
    return Column(name, dtype, "", "", compute, published=False, **printed)


def _declare_axes() -> Iterator[Column]:
    kinds: Mapping[object, str] = {str: TEXT, int: COUNT, bool: FLAG}
    types = {axis.name: axis.type for axis in fields(Axes)}
    for axis in AXIS_SPECS:
        dtype = COUNT if axis.name == "loss_scale" else kinds.get(types[axis.name], TEXT)
        meaning = axis.description[0].lower() + axis.description[1:].rstrip(".")
        meaning += "; missing where it is dynamic" if axis.name == "loss_scale" else ""
        yield Column(axis.name, dtype, axis.unit, meaning, planned(axis.name))


def _declare_settings() -> Iterator[Column]:
    docstrings = list_docstrings(Protocol)
    for name, setting in Protocol.model_fields.items():
        dtype = NUMBER if _has_float(setting.annotation) else COUNT
        unit = next((unit for end, unit in SETTING_UNITS.items() if name.endswith(end)), "")
        meaning = " ".join(docstrings[name].split())
        meaning = meaning[0].lower() + meaning[1:].rstrip(".")
        meaning += "; missing where a case has no use for it" if name in USES else ""
        yield Column(name, dtype, unit, meaning, planned(name))


def _has_float(kind: object) -> bool:
    """Whether a setting of this type, such as Optional[Annotated[float, ...]], may be a float."""
    return kind is float or any(_has_float(part) for part in get_args(kind))


def _declare_latencies(name: str, meaning: str) -> Iterator[Column]:
    for part in LATENCY_NAMES:
        yield declare_median(
            f"{name}_{part}_ms", "ms", f"{describe_latency(part)}{meaning}",
            median_of(f"{name}_{part}_seconds", 1000),
            header=f"{part if part == 'avg' else part[1:] + ' %'} ms", missing="too few",
        )  # fmt: skip
        yield declare_hidden(
            f"{name}_{part}_seconds", NUMBER, plain_median_of(f"{name}_{part}_seconds")
        )


def _declare_latency_speedups() -> Iterator[Column]:
    for part in LATENCY_NAMES:
        yield declare_ratio(
            f"latency_{part}_speedup", "ratio",
            f"{describe_latency(part)} in `reference_precision` over this one",
            ratio_to(f"latency_{part}_seconds", "full_precision_case", is_time=True),
            header="speedup",
        )  # fmt: skip


def _find_deviation(cases: Cases, below: Below) -> "Series":
    """Compute the standard deviation (n - 1) of top-1 over seeds, exactly: in Python."""
    known = below.sound[below.sound.top1.notna()]
    found = {case_id: stdev(own) for case_id, own in known.groupby("case_id").top1 if len(own) > 1}
    return below.plan.index.to_series().map(found).astype(NUMBER)


def _find_sizes(cases: Cases, below: Below) -> "Series":
    sizes = below.frames.repeats[["case_id", "batch_size_per_device"]].dropna().drop_duplicates()
    texts = sizes.sort_values("batch_size_per_device").astype("string").groupby("case_id")
    return (
        texts.batch_size_per_device.agg(" ".join).reindex(below.plan.index).astype(TEXT).fillna("")
    )


def _find_problem(cases: Cases, below: Below) -> "Series":
    """Find the first of these words that any repeat has, where none was measured."""
    from pandas import Categorical, Series

    status = below.frames.repeats.status
    words = Categorical(status.mask(status == OK), ["OOM", "failed", "invalid", "missing"], True)
    worst = Series(words, index=below.frames.repeats.case_id).groupby(level=0).min()
    problem = worst.reindex(below.plan.index).astype("string").fillna("missing")
    problem = problem.mask(below.plan.reason != "", "not run")
    return problem.mask(cases["repeats_measured"] > 0, "")


def _find_published_peak(cases: Cases, below: Below) -> "Series":
    """Find the peak of the devices of all repeats; missing where they differ."""
    is_one = below.sound.groupby("case_id").devices.nunique().reindex(below.plan.index) == 1
    return cases["first_peak_tflops"].where(is_one)


def _at_busiest(column: str) -> Compute:
    """Take a column of the repeat in which other processes took most of the CPUs."""

    def compute(cases: Cases, below: Below) -> "Series":
        known = below.frames.repeats.dropna(subset="other_cpu_share")
        busiest = known.loc[known.groupby("case_id").other_cpu_share.idxmax()]
        return busiest.set_index("case_id")[column].reindex(below.plan.index)

    return compute


def _find_slowest(column: str) -> Compute:
    def compute(cases: Cases, below: Below) -> "Series":
        first = below.frames.devices.groupby("case_id")[column].first()
        return first.reindex(below.plan.index).astype("string")

    return compute


def _find_sums(column: str) -> Compute:
    """Compute the median over all all-reduces of all repeats."""
    return lambda cases, below: (
        below.frames.sums.groupby("case_id")[column].median().reindex(below.plan.index)
    )


def _reach(hidden_share: float) -> Compute:
    """Compute the efficiency of a step with an all-reduce, of which compute hides a share."""
    from pandas import Series

    def compute(cases: Cases, below: Below) -> "Series":
        frame = below.make_frame(cases, "baseline", "repeats_measured", "samples_per_s")
        group = Series(number_groups(frame, ratios.leave_out("topology")), index=frame.index)
        is_base = (frame.topology == frame.baseline) & (frame.world_size == 1)
        step = cases["global_batch_size"].astype(NUMBER) / frame.samples_per_s
        step = group.map(step[is_base].groupby(group[is_base]).first())
        seconds = cases["all_reduce_seconds"]
        summed = group.isin(group[seconds.notna()])
        seconds = seconds.mask(is_base & summed, 0.0)
        exposed = (seconds - hidden_share * step).clip(lower=0.0)
        return step / (step + exposed)

    return compute


CASES: tuple[Column, ...] = (
    Column("case_id", TEXT, "", "the case; it joins frames, and runs of one matrix",
        planned("case_id"), header="case"),
    Column("model", TEXT, "", "model, by the name of its definition", planned("model")),
    *_declare_axes(),
    Column("batch_sizes_measured", TEXT, "samples", "what was measured, per device, ascending: "
        "several where repeats of a search found several", _find_sizes, header="batch size"),
    Column("batch_size_measured", COUNT, "samples", "the only one of `batch_sizes_measured`, per "
        "device, to sort and draw by; missing where there are several, or none",
        formula(lambda c: c["batch_sizes_measured"].where(
            c["batch_sizes_measured"].str.fullmatch(r"\d+")).astype(COUNT))),
    Column("nodes", COUNT, "nodes", "of the topology", planned("nodes")),
    Column("devices_per_node", COUNT, "devices", "of the topology", planned("devices_per_node")),
    Column("world_size", COUNT, "ranks", "nodes x devices_per_node: one rank per device",
        planned("world_size")),
    Column("model_parameters", TEXT, "", "sizes of the model as JSON, as in its [model] table",
        OverRepeats("model_parameters", FIRST)),
    Column("parameter_count", COUNT, "parameters", "of the model that was measured",
        OverRepeats("parameter_count", FIRST)),
    *_declare_settings(),
    declare_hidden("global_batch_size", COUNT, OverRepeats("global_batch_size", FIRST)),
    declare_hidden("first_hardware", TEXT, OverRepeats("hardware", FIRST)),
    Column("hardware", TEXT, "", "devices of the first sound repeat, on how many nodes",
        formula(lambda c: c["first_hardware"].fillna(""))),
    Column("unit", TEXT, "", "of the throughputs: images/s, sequences/s, ...", planned("unit")),
    declare_median("samples_per_s", THROUGHPUT, "throughput, median over the sound repeats",
        median_of("samples_per_s"), ("interval_low", "interval_high"), header="{unit}"),
    Column("smallest", NUMBER, THROUGHPUT, "lowest throughput of any repeat",
        OverRepeats("samples_per_s", "min")),
    Column("largest", NUMBER, THROUGHPUT, "highest throughput of any repeat",
        OverRepeats("samples_per_s", "max")),
    declare_hidden("tokens_per_sample", COUNT, OverRepeats("tokens_per_sample", FIRST)),
    Column("tokens_per_s", NUMBER, "tokens/s", "`samples_per_s` x the tokens of a sample; missing "
        "of models that are published in samples",
        formula(lambda c: c["samples_per_s"] * c["tokens_per_sample"].astype(NUMBER))),
    Column("repeats_measured", COUNT, "repeats", "with a sound record",
        lambda c, below: c["repeats_measured"]),
    Column("repeats_planned", COUNT, "repeats", "asked for; 0 of a case that was left out",
        planned("repeats_planned")),
    declare_hidden("baseline_case", TEXT, baseline(ratios.find_smallest_topologies)),
    declare_hidden("speedup_together", COUNT, lambda c, below: ratios.count_curve_points(
        below.make_frame(c, "repeats_measured"), c["baseline_case"])),
    Column("baseline", TEXT, "", "smallest topology measured: `speedup` is relative to it",
        lambda c, below: c["baseline_case"].map(below.plan.topology).astype(TEXT).fillna("")),
    declare_ratio("speedup", "ratio", "throughput over that of `baseline`",
        ratio_to("samples_per_s", "baseline_case", together="speedup_together"), header="speedup"),
    declare_ratio("weak_scaling_efficiency", "share of 1", "`speedup` per device over that of "
        "`baseline`, at the same batch size per device",
        times("speedup", lambda c: (c["baseline_case"].map(c["world_size"]) / c["world_size"])
            .astype(NUMBER)), header="efficiency", form=SHARE),
    declare_hidden("flops_per_sample", NUMBER, OverRepeats("flops_per_sample", FIRST)),
    Column("tflops_per_device", NUMBER, "10^12 FLOP/s", "work that the model's definition asks "
        "for, over the time that it took, per device; of training",
        formula(lambda c: c["samples_per_s"] / c["world_size"].astype(NUMBER)
            * c["flops_per_sample"] / TERA), missing=UNKNOWN),
    Column("measured_peak_tflops", NUMBER, "10^12 FLOP/s", "rate that the framework's "
        "matrix product sustains on the device, measured on its node in the case's numbers",
        OverRepeats("measured_peak_tflops", "median")),
    declare_hidden("first_peak_tflops", NUMBER, OverRepeats("published_peak_tflops", FIRST)),
    Column("published_peak_tflops", NUMBER, "10^12 FLOP/s", "peak of the device in its vendor's "
        "data sheet, without sparsity; missing of devices that are not known",
        _find_published_peak),
    Column("measured_peak_share", NUMBER, "share of 1", "`tflops_per_device` over "
        "`measured_peak_tflops` (MFU)",
        formula(lambda c: c["tflops_per_device"] / c["measured_peak_tflops"]),
        header="of measured peak", form=SHARE, missing=UNKNOWN),
    Column("published_peak_share", NUMBER, "share of 1", "`tflops_per_device` over "
        "`published_peak_tflops`",
        formula(lambda c: c["tflops_per_device"] / c["published_peak_tflops"]),
        header="of published peak", form=SHARE, missing=UNKNOWN),
    Column("copied_gb_per_s", NUMBER, "10^9 bytes/s", "copy within the device's memory, read and "
        "written", OverRepeats("copied_gb_per_s", "median")),
    declare_hidden("all_reduce_seconds", NUMBER, _find_sums("seconds")),
    Column("all_reduce_gb_per_s", NUMBER, "10^9 bytes/s", "size of the gradients over the time in "
        "which all ranks sum so much", _find_sums("gb_per_s")),
    Column("reachable_efficiency", NUMBER, "share of 1", "weak-scaling efficiency of one device's "
        "step with the sum of gradients beside its backward pass, as far as that lasts",
        _reach(BACKWARD_SHARE), header="reachable efficiency", form=SHARE, missing=UNKNOWN),
    Column("unoverlapped_efficiency", NUMBER, "share of 1", "the same with the sum of gradients "
        "after the step", _reach(0.0)),
    declare_hidden("precision_table", COUNT, baseline(ratios.number_precision_tables)),
    Column("reference_precision", TEXT, "", "fp32, or tf32 where that was not measured: "
        "`precision_speedup` is relative to it",
        baseline(ratios.find_reference_precisions, "precision_table")),
    declare_hidden("full_precision_case", TEXT,
        baseline(ratios.find_full_precisions, "precision_table", "reference_precision")),
    declare_ratio("precision_speedup", "ratio", "throughput over that in `reference_precision`, "
        "at the same topology", ratio_to("samples_per_s", "full_precision_case"),
        header="speedup"),
    *_declare_latencies("latency", " of an inference batch, median over the repeats, or of all "
        "their batches together; missing where these are too few"),
    *_declare_latency_speedups(),
    *(column for name in ("ttft", "tpot", "itl")
        for column in _declare_latencies(name, f": {LATENCIES[name][0]}")),
    declare_hidden("decoded_gb", NUMBER, OverRepeats("decoded_gb", FIRST)),
    *(Column(name, NUMBER, unit, meaning, formula(compute), header=header, form=form)
      for name, unit, meaning, compute, header, form in (
        ("prefill_tokens_per_s", "tokens/s", "tokens of prompts over the mean time to the first "
            "token, of all ranks", lambda c: (c["global_batch_size"] * c["prompt_length"])
            .astype(NUMBER) / c["ttft_avg_seconds"], "prefill tokens/s", WHOLE),
        ("decode_tokens_per_s", "tokens/s", "following tokens over their mean time, of all ranks",
            lambda c: c["global_batch_size"].astype(NUMBER) / c["tpot_avg_seconds"],
            "decode tokens/s", WHOLE),
        ("decode_gb_per_s", "10^9 bytes/s", "what a decoding has to read of a device's memory, "
            "weights and cache, over its mean time",
            lambda c: c["decoded_gb"] / c["tpot_avg_seconds"], "", RATIO),
        ("decode_bandwidth_share", "share of 1", "`decode_gb_per_s` over `copied_gb_per_s`",
            lambda c: c["decode_gb_per_s"] / c["copied_gb_per_s"], "of bandwidth", SHARE),
    )),
    Column("computed_samples_per_s", NUMBER, THROUGHPUT, COMPUTED_MEANING,
        plain_median_of("computed_samples_per_s"), header="without waiting", missing=UNKNOWN),
    Column("data_waiting_share", NUMBER, "share of 1", WAITING_MEANING,
        OverRepeats("data_waiting_share", "median"), header="waiting", form=SHARE,
        missing=UNKNOWN),
    declare_hidden("device_data_case", TEXT, baseline(ratios.find_data_on_device)),
    declare_ratio("relative_to_device_data", "ratio", "throughput over that of the same case "
        "whose batch is on the device", ratio_to("samples_per_s", "device_data_case"),
        header="of data on the device"),
    *(Column(name, NUMBER, "share of 1", meaning, compute, header=header, form=PERCENT,
        missing=missing)
      for name, compute, meaning, header, missing in (
        ("top1_average", OverRepeats("top1", "mean"), "top-1 on the validation samples after the "
            "last epoch, mean over seeds", "average top-1 %", ""),
        ("top1_deviation", _find_deviation, "standard deviation (n - 1) over seeds", "deviation",
            "one seed"),
        ("top1_lowest", OverRepeats("top1", "min"), "of all seeds", "minimum", ""),
        ("top1_highest", OverRepeats("top1", "max"), "of all seeds", "maximum", ""),
    )),
    Column("epochs", NUMBER, "epochs", "that were run, median over seeds",
        OverRepeats("epochs", "median"), header="epochs", form=Number("g")),
    declare_hidden("target_top1", NUMBER, OverRepeats("target_top1", "max")),
    declare_hidden("seeds", COUNT, OverRepeats("top1", "count")),
    Column("seeds_at_target", COUNT, "seeds", "that reached the target; missing without one",
        lambda c, below: (below.frames.repeats.top1 >= below.frames.repeats.target_top1).groupby(
            below.frames.repeats.case_id).sum().reindex(below.plan.index)
            .where(c["target_top1"] > 0)),
    Column("train_seconds", NUMBER, "s", "from the first step to the end of the last epoch's "
        "validation, median over seeds", plain_median_of("train_seconds"), header="time to train",
        form=Duration(), missing=UNKNOWN),
    declare_hidden("full_training_case", TEXT,
        baseline(ratios.find_full_trainings)),
    declare_ratio("train_speedup", "ratio", "time to train in the full precision over this one",
        ratio_to("train_seconds", "full_training_case", is_time=True)),
    Column("imbalance", NUMBER, "ratio", "slowest rank's median step over the median rank's",
        OverRepeats("imbalance", "median"), header="imbalance", form=Number(".3f")),
    Column("waiting_share", NUMBER, "share of 1", "part of a step that ranks on average wait for "
        "the slowest one; of training", OverRepeats("waiting_share", "median"),
        header="waiting", form=SHARE, missing="none"),
    Column("slowest_host", TEXT, "", "host of the slowest rank", _find_slowest("host")),
    Column("slowest_rank", TEXT, "", "the slowest rank, by number; several where a device had "
        "another rank in another repeat", _find_slowest("ranks")),
    Column("peak_memory_bytes", COUNT, "bytes", "the most that any rank took in any repeat",
        OverRepeats("peak_memory_bytes", "max"), header="peak MiB",
        form=Number(".0f", 1 / 2**20), missing=UNKNOWN),
    Column("utilization", NUMBER, "share of 1", "use of the devices, mean over the window",
        OverRepeats("utilization", "median"), header="busy %", form=OCCUPIED, missing=UNKNOWN),
    Column("power_watts", NUMBER, "W", "of all devices together, or of the CPUs of all hosts where "
        "these are the devices; median over the repeats", OverRepeats("power_watts", "median"),
        header="W", form=Number(".1f"), missing=UNKNOWN),
    Column("samples_per_joule", NUMBER, "samples/J", "throughput over power",
        OverRepeats("samples_per_joule", "median"), header="{unit}", form=Number(".3f"),
        missing=UNKNOWN),
    Column("clock_mhz", NUMBER, "MHz", "clock of the devices, mean over them and the window",
        OverRepeats("clock_mhz", "median"), header="MHz", form=WHOLE, missing=UNKNOWN),
    Column("least_clock_mhz", NUMBER, "MHz", "lowest sample of any device's clock",
        OverRepeats("least_clock_mhz", "min"), header="least MHz", form=WHOLE, missing=UNKNOWN),
    declare_hidden("is_usage_known", FLAG, OverRepeats("is_usage_known", "any")),
    Column("own_cpu_share", NUMBER, "share of 1", "CPU time of all CPUs that the run took in the "
        "window, on the host and in the repeat of `other_cpu_share`", _at_busiest("own_cpu_share")),
    Column("other_cpu_share", NUMBER, "share of 1", "CPU time of all CPUs that processes which are "
        "not the run's took in the window; the most on any host in any repeat",
        _at_busiest("other_cpu_share")),
    *(declare_hidden(f"phase_{name}_seconds", NUMBER,
        OverRepeats(f"phase_{name}_seconds", "median")) for name in PHASES),
    declare_hidden("to_first_step_seconds", NUMBER, OverRepeats("to_first_step_seconds", "median"),
        header="script to first step"),
    Column("problem", TEXT, "", "why there is no figure: OOM, failed, invalid, missing, not run",
        _find_problem),
    Column("reason", TEXT, "", "why the case was left out of the run; empty if it was not",
        planned("reason")),
)  # fmt: skip


@dataclass(frozen=True)
class Results:
    """The frames of a run with those that are computed from them; `notes` are all notes."""

    frames: RunFrames
    samples: "Series"
    cases: "DataFrame"
    notes: "DataFrame"

    @cached_property
    def training(self) -> "DataFrame":
        """The cases of training: one frame for all tables, as a filter of so many columns costs."""
        return self.cases[self.cases["mode"] == TRAIN]

    @cached_property
    def inference(self) -> "DataFrame":
        return self.cases[self.cases["mode"] == INFER]

    @cached_property
    def case_columns(self) -> "DataFrame":
        """The columns that files have of the cases; not to be changed."""
        return select_published(CASE_TABLE, self.cases.assign(notes=_join_notes(self)))

    @property
    def repeat_columns(self) -> "DataFrame":
        """The columns that files have of the repeats, which have a `status` of "ok", or why not."""
        return select_published(REPEATS, self.frames.repeats)


# that have samples of their own: the efficiency is the speedup in another unit
RATIOS = ("speedup", "precision_speedup", "relative_to_device_data", "train_speedup")
PLAN_ONLY = ("planned_epochs", "planned_size", "has_batch_search", "blocks")


def analyze(outcomes: Sequence[CaseOutcomes]) -> Results:
    """Compute the cases of a run, their ratios and notes."""
    from pandas import DataFrame, concat

    frames = make_run_frames(outcomes)
    plan = _make_plan(outcomes)
    samples = make_samples(frames.repeats, frames.pooled, SAMPLED)
    sound = frames.repeats[frames.repeats.samples_per_s.notna()]
    below = Below(frames, plan, samples, sound, summarize_samples(samples))
    cases: Cases = {name: plan[name] for name in PLAN_ONLY}
    measured = sound.groupby("case_id").size().reindex(plan.index, fill_value=0)
    cases["repeats_measured"] = measured
    cases["values_measured"] = below.summarize("samples_per_s")["count"].fillna(0).astype(int)
    for column in CASES:
        found = column.compute(cases, below)
        parts = found.items() if len(column.names) > 1 else [(column.name, found)]
        cases.update(zip(column.names, (values for _, values in parts)))
        # whatever was measured, and also where nothing was, the types are those declared
        cases[column.name] = cases[column.name].astype(column.dtype)
    frame = DataFrame(cases)
    differences = describe_differences(outcomes)
    added = [
        *((case_id, notes.TABLE, text) for case_id, own in differences.items() for text in own),
        *notes.describe_few_repeats(frame),
        *notes.describe_sizes(frame),
        *notes.describe_exceeded_peaks(frame),
        *notes.describe_pooled(frames.pooled),
        *notes.describe_slow_machines(frames.ranks),
        *(row for name in RATIOS for row in notes.describe_ratios(frame, name)),
    ]
    all_notes = concat([frames.notes, DataFrame(added, columns=frames.notes.columns)])
    return Results(frames, samples, frame, all_notes)


def _make_plan(outcomes: Sequence[CaseOutcomes]) -> "DataFrame":
    """Build the frame of what was planned, by `case_id`, in the order of the matrix."""
    from pandas import DataFrame

    rows = []
    for case in (one.case for one in outcomes):
        topology = parse_topology(case.axes.topology)
        values = {
            "case_id": case.case_id,
            "model": case.model,
            **{name: getattr(case.axes, name) for name in AXES},
            "batch_size_per_device": case.batch_size_text,
            "loss_scale": case.axes.constant_loss_scale,
            **dict.fromkeys(Protocol.model_fields),
            **case.settings,
            "planned_epochs": case.epochs,
            "planned_size": 0 if case.axes.has_batch_search else case.axes.batch_size,
            "has_batch_search": case.axes.has_batch_search,
            "nodes": topology.nodes,
            "devices_per_node": topology.devices_per_node,
            "world_size": topology.world_size,
            "unit": find_unit(case.model),
            "repeats_planned": 0 if case.reason else case.repeats,
            "blocks": case.blocks,
            "reason": case.reason,
        }
        rows.append(values)
    frame = DataFrame(rows, columns=None if rows else PLANNED)
    dtypes = {c.name: c.dtype for c in CASES if c.name in frame}
    return frame.astype(dtypes).set_index("case_id", drop=False).rename_axis(None)


# the columns of a plan without cases
PLANNED = ["case_id", "model", *AXES, *Protocol.model_fields, "planned_epochs", "planned_size",
    "has_batch_search", "nodes", "devices_per_node", "world_size", "unit", "repeats_planned",
    "reason"]  # fmt: skip


def _join_notes(results: Results) -> "Series":
    """Join what tables have as footnotes, by case; `reason` has why a case was left out."""
    order = {scope: place for place, scope in enumerate(
        (notes.CASE, notes.TABLE, *RATIOS, notes.DATA, notes.USAGE, notes.SCALING, notes.LATENCY,
         notes.GENERATION))}  # fmt: skip
    reasons = dict(zip(results.cases.index, results.cases.reason))
    found: dict[str, list[tuple[int, str]]] = {case_id: [] for case_id in reasons}
    own = results.notes[results.notes.scope.isin(order)]
    for case_id, scope, note in zip(own.case_id, own.scope, own.note):
        found[case_id].append((order[scope], str(note)))
    from pandas import Series

    texts = {
        case_id: dict.fromkeys(text for _, text in sorted(rows, key=lambda row: row[0]))
        for case_id, rows in found.items()
    }
    joined = [
        "; ".join(text for text in own if text != reasons[case_id])
        for case_id, own in texts.items()
    ]
    return Series(joined, index=results.cases.index, dtype=TEXT)


# notes are texts of all results: no column of the frame is computed from them
CASE_TABLE: tuple[Column, ...] = (
    *CASES,
    Column("notes", TEXT, "", "what tables have as footnotes, joined by semicolons", _join_notes),
)
