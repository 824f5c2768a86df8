"""The columns of the data frame of cases, each declared once with its meaning.

A column is computed from the plan, from the repeats of the case, from its samples (median with
interval), or from columns declared before it (see `results.case_formulas`).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.matrix.axes import AXIS_SPECS
from dlperf_slurm.matrix.settings import SETTINGS
from dlperf_slurm.results import ratios
from dlperf_slurm.results.case_formulas import (
    FIRST,
    Compute,
    RepeatAggregate,
    at_busiest,
    baseline,
    compute_deviation,
    compute_reachable_efficiency,
    divide_by_devices,
    find_problem,
    find_sizes,
    median_of,
    median_of_all_reduces,
    of_slowest_device,
    ratio_to,
    tflops_of,
)
from dlperf_slurm.results.columns import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    THROUGHPUT,
    Column,
    copy_column,
    hide_column,
    with_bounds,
)
from dlperf_slurm.results.labels import IDENTITY
from dlperf_slurm.results.model_hardware import describe_models
from dlperf_slurm.results.number_formats import COUNT as WHOLE
from dlperf_slurm.results.number_formats import (
    NO_REFERENCE,
    PERCENT,
    RATIO,
    SHARE,
    UNKNOWN,
    DurationFormat,
    ScaledFormat,
)
from dlperf_slurm.results.operation_counts import BACKWARD_SHARE, TERA
from dlperf_slurm.results.repeats import (
    COMPUTED_MEANING,
    LATENCIES,
    PHASES,
    WAITING_MEANING,
    describe_latency,
)
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame, Index

# unit by the suffix of a setting's name; a seed has no unit
SETTING_UNITS = {
    "repeats": "repeats",
    "blocks": "array jobs",
    "_steps": "steps",
    "batch_size_step": "samples",
    "_mib_per_device": "MiB",
    "_seconds": "s",
}


# helpers that declare similar columns


def declare_median(
    name: str,
    unit: str,
    meaning: str,
    compute: Compute,
    bounds: Optional[tuple[str, str]] = None,
    **printed: Any,
) -> Column:
    """Declare columns of a median over samples, its interval, and its range, which files omit.

    `bounds` renames the interval's columns; `printed` has `header`, `form`, `missing` of Column.
    """
    return Column(
        name, NUMBER, unit, meaning, compute, bounds or with_bounds(name),
        extremes=(f"{name}_min", f"{name}_max"), **printed,
    )  # fmt: skip


def declare_ratio(name: str, unit: str, meaning: str, compute: Compute, **printed: Any) -> Column:
    """Declare a column of ratios to a baseline, which `compute` returns with their intervals."""
    printed.setdefault("missing", NO_REFERENCE)
    return Column(
        name, NUMBER, unit, meaning, compute, with_bounds(name), hidden=(f"{name}_is_baseline",),
        **printed,
    )  # fmt: skip


def _declare_axes() -> Iterator[Column]:
    """Yield a column for each axis of the matrix, such as `framework`, copied from the plan."""
    for axis in AXIS_SPECS:
        meaning = axis.description[0].lower() + axis.description[1:].rstrip(".")
        meaning += "; missing for a dynamic loss scale" if axis.name == "loss_scale" else ""
        yield copy_column(axis.name, IDENTITY[axis.name], axis.unit, meaning)


def _declare_settings() -> Iterator[Column]:
    """Yield a column for each setting of the matrix's [protocol] table, such as `measured_steps`.

    docs/make_columns.py takes their meanings from the matrix's classes, which need pydantic.
    """
    for name in SETTINGS:
        unit = next((unit for end, unit in SETTING_UNITS.items() if name.endswith(end)), "")
        meaning = f"`{name}` of the matrix's [protocol] table"
        yield copy_column(name, NUMBER if unit == "s" else COUNT, unit, meaning)


def _declare_latencies(name: str, meaning: str) -> Iterator[Column]:
    """Declare mean and percentiles of a latency, such as `ttft_p99_ms`.

    `name` begins the columns' names ("ttft"); `meaning` follows "99th-percentile latency" or such.
    """
    for part in LATENCY_NAMES:
        yield declare_median(
            f"{name}_{part}_ms", "ms", f"{describe_latency(part)}{meaning}",
            median_of(f"{name}_{part}_seconds", 1000),
            header=f"{part} ms", missing="too few values",
        )  # fmt: skip


def _declare_latency_speedups() -> Iterator[Column]:
    """Declare the speedup of each latency (mean, percentiles) over fp32, or tf32 without fp32."""
    for part in LATENCY_NAMES:
        yield declare_ratio(
            f"latency_{part}_speedup", "ratio",
            f"{describe_latency(part)} in `reference_precision` divided by that of this case",
            ratio_to(f"latency_{part}_seconds", "full_precision_case", is_time=True),
            header="speedup",
        )  # fmt: skip


CASES: tuple[Column, ...] = (
    copy_column("case_id", TEXT, "", "id of the case, the same in all frames and in all runs of "
        "one matrix", header="case"),
    copy_column("model", TEXT, "", "name of the model"),
    *_declare_axes(),
    Column("batch_sizes_measured", TEXT, "samples", "batch sizes that the valid repeats measured, "
        "per device, ascending; several if the batch-size search found different sizes in "
        "different repeats", find_sizes, header="batch size"),
    Column("batch_size_measured", COUNT, "samples", "batch size that was measured, per device, "
        "to sort and plot by; missing if there are several, or none",
        lambda c: c["batch_sizes_measured"].where(
            c["batch_sizes_measured"].str.fullmatch(r"\d+")).astype(COUNT)),
    copy_column("nodes", COUNT, "nodes", "number of nodes of the topology"),
    copy_column("devices_per_node", COUNT, "devices", "number of devices on each node of the "
        "topology"),
    copy_column("world_size", COUNT, "ranks", "ranks: nodes x devices_per_node, as each rank has "
        "one device"),
    Column("model_parameters", TEXT, "", "parameters of the model as JSON, as in its [model] table",
        RepeatAggregate("model_parameters", FIRST)),
    Column("parameter_count", COUNT, "parameters", "number of parameters of the model that was "
        "measured", RepeatAggregate("parameter_count", FIRST)),
    hide_column("model_title", TEXT, lambda c: describe_models(
        c["model"], c["model_parameters"], c["parameter_count"])),
    *_declare_settings(),
    hide_column("samples_per_step", COUNT, RepeatAggregate("global_batch_size", FIRST)),
    hide_column("first_hardware", TEXT, RepeatAggregate("hardware", FIRST)),
    Column("hardware", TEXT, "", "number and model of the devices, and number of nodes; from the "
        "first valid repeat", lambda c: c["first_hardware"].fillna("")),
    copy_column("unit", TEXT, "", "unit of the throughputs, such as images/s"),
    declare_median("samples_per_s", THROUGHPUT, "throughput, median over the valid repeats",
        median_of("samples_per_s"), ("interval_low", "interval_high"), header="{unit}"),
    Column("smallest", NUMBER, THROUGHPUT, "lowest throughput of any repeat",
        RepeatAggregate("samples_per_s", "min")),
    Column("largest", NUMBER, THROUGHPUT, "highest throughput of any repeat",
        RepeatAggregate("samples_per_s", "max")),
    hide_column("tokens_per_sample", COUNT, RepeatAggregate("tokens_per_sample", FIRST)),
    Column("tokens_per_s", NUMBER, "tokens/s", "throughput in tokens: `samples_per_s` x tokens "
        "per sample; missing for models whose results are published in samples",
        lambda c: c["samples_per_s"] * c["tokens_per_sample"].astype(NUMBER)),
    copy_column("repeats_measured", COUNT, "repeats", "number of repeats with a valid record"),
    copy_column("repeats_planned", COUNT, "repeats", "number of planned repeats; 0 if the case was "
        "left out of the run"),
    hide_column("baseline_case", TEXT, baseline(ratios.find_smallest_topologies)),
    hide_column("speedup_together", COUNT, lambda c: ratios.count_curve_points(
        c.make_frame("repeats_measured"), c["baseline_case"])),
    Column("baseline", TEXT, "", "smallest topology that was measured, to which `speedup` is "
        "relative", lambda c: c["baseline_case"].map(c["topology"]).astype(TEXT).fillna("")),
    declare_ratio("speedup", "ratio", "throughput divided by that of `baseline`",
        ratio_to("samples_per_s", "baseline_case", together="speedup_together"), header="speedup"),
    *(declare_ratio(f"{kind}_scaling_efficiency", "fraction", "`speedup` divided by the ratio "
        f"of device counts, at the same {size}", divide_by_devices(is_strong),
        header=f"{header}efficiency", form=SHARE)
      for kind, size, is_strong, header in (
        ("weak", "batch size per device", False, ""),
        ("strong", "global batch size", True, "strong-scaling "))),
    hide_column("flops_per_sample", NUMBER, RepeatAggregate("flops_per_sample", FIRST)),
    hide_column("tflop_per_sample", NUMBER, lambda c: c["flops_per_sample"] / TERA
        / c["world_size"].astype(NUMBER)),
    declare_median("tflops_per_device", "10^12 FLOP/s", "FLOP/s per device, with the FLOPs of a "
        "training step counted from the model's definition", tflops_of(), missing=UNKNOWN),
    Column("measured_peak_tflops", NUMBER, "10^12 FLOP/s", "highest matrix-multiplication (GEMM) "
        "rate of the framework on this device in the precision of the case, measured on the same "
        "node", RepeatAggregate("measured_peak_tflops", "median")),
    hide_column("first_peak_tflops", NUMBER, RepeatAggregate("published_peak_tflops", FIRST)),
    Column("published_peak_tflops", NUMBER, "10^12 FLOP/s", "peak of the device in its vendor's "
        "data sheet, without sparsity; missing for unknown devices",
        lambda c: c["first_peak_tflops"].where(
            c.valid.groupby("case_id").devices.nunique().reindex(c.plan.index) == 1)),
    *(declare_median(f"{kind}_peak_share", "fraction", f"`tflops_per_device` / "
        f"`{kind}_peak_tflops`{name}; the interval does not include the uncertainty of the peak",
        tflops_of(f"{kind}_peak_tflops"), header=f"share of {kind} peak", form=SHARE,
        missing=UNKNOWN)
      for kind, name in (("measured", " (MFU)"), ("published", ""))),
    Column("copied_gb_per_s", NUMBER, "GB/s", "memory bandwidth of the device, measured by a copy: "
        "bytes read plus bytes written", RepeatAggregate("copied_gb_per_s", "median")),
    hide_column("all_reduce_seconds", NUMBER, median_of_all_reduces("seconds")),
    Column("all_reduce_gb_per_s", NUMBER, "GB/s", "bus bandwidth of an all-reduce of the "
        "gradients: 2 (n - 1) / n of their size, for n ranks, divided by its time",
        median_of_all_reduces("gb_per_s")),
    Column("reachable_efficiency", NUMBER, "fraction", "highest weak-scaling efficiency if the "
        "all-reduce of the gradients overlaps the backward pass; computed from the step time of "
        "one device and from the time of a separate all-reduce",
        compute_reachable_efficiency(BACKWARD_SHARE), header="reachable efficiency", form=SHARE,
        missing=UNKNOWN),
    Column("unoverlapped_efficiency", NUMBER, "fraction", "as `reachable_efficiency`, but "
        "for an all-reduce that does not overlap the backward pass",
        compute_reachable_efficiency(0.0)),
    hide_column("precision_table", COUNT, baseline(ratios.number_precision_tables)),
    Column("reference_precision", TEXT, "", "precision to which `precision_speedup` is "
        "relative: fp32, or tf32 if fp32 was not measured",
        baseline(ratios.find_reference_precisions, "precision_table")),
    hide_column("full_precision_case", TEXT,
        baseline(ratios.find_full_precisions, "precision_table", "reference_precision")),
    declare_ratio("precision_speedup", "ratio", "throughput divided by that in "
        "`reference_precision` at the same topology",
        ratio_to("samples_per_s", "full_precision_case"), header="speedup"),
    *_declare_latencies("latency", " of an inference batch: median over the repeats. If a repeat "
        "has too few batches for this value, it is computed from the batches of all repeats "
        "together. It is missing if all repeats together have too few batches"),
    *_declare_latency_speedups(),
    *(column for name in ("ttft", "tpot", "itl")
        for column in _declare_latencies(name, f": {LATENCIES[name][0]}")),
    hide_column("decoded_gb", NUMBER, RepeatAggregate("decoded_gb", FIRST)),
    *(Column(name, NUMBER, unit, meaning, compute, header=header, form=form)
      for name, unit, meaning, compute, header, form in (
        ("prefill_tokens_per_s", "tokens/s", "prompt tokens of all ranks divided by the mean time "
            "to the first token", lambda c: (c["samples_per_step"] * c["prompt_length"])
            .astype(NUMBER) / c.medians["ttft_avg_seconds"]["median"], "prefill tokens/s", WHOLE),
        ("decode_tokens_per_s", "tokens/s", "sequences of all ranks divided by the mean time per "
            "output token after the first",
            lambda c: c["samples_per_step"].astype(NUMBER)
            / c.medians["tpot_avg_seconds"]["median"],
            "decode tokens/s", WHOLE),
        ("decode_gb_per_s", "GB/s", "bytes of weights and KV cache that one decoding step reads "
        "from device memory, divided by the mean time per output token after the first",
            lambda c: c["decoded_gb"] / c.medians["tpot_avg_seconds"]["median"], "", RATIO),
        ("decode_bandwidth_share", "fraction", "`decode_gb_per_s` divided by `copied_gb_per_s`",
            lambda c: c["decode_gb_per_s"] / c["copied_gb_per_s"], "share of bandwidth", SHARE),
    )),
    Column("computed_samples_per_s", NUMBER, THROUGHPUT, COMPUTED_MEANING,
        lambda c: c.medians["computed_samples_per_s"]["median"], header="without waiting",
        missing=UNKNOWN),
    Column("data_waiting_share", NUMBER, "fraction", WAITING_MEANING,
        RepeatAggregate("data_waiting_share", "median"), header="waiting", form=SHARE,
        missing=UNKNOWN),
    hide_column("device_data_case", TEXT, baseline(ratios.find_data_on_device)),
    declare_ratio("relative_to_device_data", "ratio", "throughput divided by that of the same "
        "case with data on the device", ratio_to("samples_per_s", "device_data_case"),
        header="vs. data on the device"),
    *(Column(name, NUMBER, "fraction", meaning, compute, header=header, form=PERCENT,
        missing=missing)
      for name, compute, meaning, header, missing in (
        ("top1_average", RepeatAggregate("top1", "mean"), "top-1 accuracy on the validation "
        "samples after the last epoch, mean over seeds", "average top-1 %", ""),
        ("top1_deviation", compute_deviation, "standard deviation (n - 1) of the top-1 accuracy "
            "over seeds", "deviation", "one seed"),
        ("top1_lowest", RepeatAggregate("top1", "min"), "lowest top-1 accuracy over all seeds",
            "minimum", ""),
        ("top1_highest", RepeatAggregate("top1", "max"), "highest top-1 accuracy over all seeds",
            "maximum", ""),
    )),
    Column("epochs", NUMBER, "epochs", "epochs that were run, median over seeds",
        RepeatAggregate("epochs", "median"), header="epochs", form=ScaledFormat("g")),
    hide_column("target_top1", NUMBER, RepeatAggregate("target_top1", "max")),
    hide_column("seeds", COUNT, RepeatAggregate("top1", "count")),
    Column("seeds_at_target", COUNT, "seeds", "number of seeds that reached the target "
        "accuracy; missing if there is no target",
        lambda c: (c.frames.repeats.top1 >= c.frames.repeats.target_top1).groupby(
            c.frames.repeats.case_id).sum().reindex(c.plan.index)
            .where(c["target_top1"] > 0)),
    Column("train_seconds", NUMBER, "s", "time from the first step to the end of the last "
        "epoch's validation, median over seeds; missing if a seed did not reach the target "
        "accuracy", lambda c: c.medians["train_seconds"]["median"], header="time to train",
        form=DurationFormat(), missing="target not reached"),
    hide_column("full_training_case", TEXT,
        baseline(ratios.find_full_trainings)),
    declare_ratio("train_speedup", "ratio", "time to train in `reference_precision` divided by "
        "that of this case", ratio_to("train_seconds", "full_training_case", is_time=True)),
    Column("imbalance", NUMBER, "ratio", "median step time of the slowest rank divided by that "
        "of the median rank",
        RepeatAggregate("imbalance", "median"), header="imbalance", form=ScaledFormat(".3f")),
    Column("waiting_share", NUMBER, "fraction", "mean share of a training step that ranks "
        "spend waiting for the slowest rank", RepeatAggregate("waiting_share", "median"),
        header="waiting", form=SHARE, missing="none"),
    Column("slowest_host", TEXT, "", "host of the slowest rank", of_slowest_device("host")),
    Column("slowest_rank", TEXT, "", "rank number of the slowest device; several if the "
        "number differed between repeats", of_slowest_device("ranks")),
    Column("peak_memory_bytes", COUNT, "B", "highest peak memory of any rank in any repeat",
        RepeatAggregate("peak_memory_bytes", "max"), header="peak MiB",
        form=ScaledFormat(".0f", 1 / 2**20), missing=UNKNOWN),
    Column("utilization", NUMBER, "fraction", "utilization of the devices, mean over the "
        "measured steps",
        RepeatAggregate("utilization", "median"), header="busy %", form=ScaledFormat(".0f", 100),
        missing=UNKNOWN),
    Column("power_watts", NUMBER, "W", "total power of the devices, or of the CPUs of all hosts "
        "if there are no GPUs; median over the repeats", RepeatAggregate("power_watts", "median"),
        header="W", form=ScaledFormat(".1f"), missing=UNKNOWN),
    Column("samples_per_joule", NUMBER, "samples/J", "throughput divided by `power_watts`",
        RepeatAggregate("samples_per_joule", "median"), header="{unit}", form=ScaledFormat(".3f"),
        missing=UNKNOWN),
    Column("node_power_watts", NUMBER, "W", "power of all nodes together; median over the repeats",
        RepeatAggregate("node_power_watts", "median"),
        header="node W", form=ScaledFormat(".1f"), missing=UNKNOWN),
    Column("joules_per_sample", NUMBER, "J/sample", "energy of the devices per sample: their power "
        "divided by throughput; missing if `node_joules_per_sample` has no value",
        RepeatAggregate("joules_per_sample", "median"), header="J per sample",
        form=ScaledFormat(".4g"), missing=UNKNOWN),
    Column("node_joules_per_sample", NUMBER, "J/sample", "energy of the nodes per sample: their "
        "power divided by throughput",
        RepeatAggregate("node_joules_per_sample", "median"), header="node J per sample",
        form=ScaledFormat(".4g"), missing=UNKNOWN),
    Column("clock_mhz", NUMBER, "MHz", "clock frequency of the devices, mean over devices and "
        "measured steps",
        RepeatAggregate("clock_mhz", "median"), header="MHz", form=WHOLE, missing=UNKNOWN),
    Column("least_clock_mhz", NUMBER, "MHz", "lowest sampled clock frequency of any device",
        RepeatAggregate("least_clock_mhz", "min"), header="least MHz", form=WHOLE, missing=UNKNOWN),
    hide_column("is_usage_known", FLAG, RepeatAggregate("is_usage_known", "any")),
    Column("run_cpu_share", NUMBER, "fraction", "CPU time of this run during the "
        "measured steps, as a share of all CPUs; from the same host and repeat as "
        "`other_cpu_share`", at_busiest("run_cpu_share")),
    Column("other_cpu_share", NUMBER, "fraction", "CPU time of other processes during the "
        "measured steps, as a share of all CPUs; highest of all hosts and repeats",
        at_busiest("other_cpu_share")),
    *(hide_column(f"phase_{name}_seconds", NUMBER,
        RepeatAggregate(f"phase_{name}_seconds", "median")) for name in PHASES),
    hide_column("to_first_step_seconds", NUMBER,
        RepeatAggregate("to_first_step_seconds", "median"), header="script to first step"),
    Column("parity_proof", TEXT, "", "folder of the `parity` run that checked the same "
        "framework, versions, code, device, precision, compiler, memory format and gradient_sync; "
        "empty if there is none", lambda c: c["case_id"].where(c["case_id"].isna(), "")),
    Column("problem", TEXT, "", "why the case has no result: OOM, failed, invalid, missing, "
        "not run", find_problem),
    copy_column("reason", TEXT, "", "why the case was left out of the run; empty if it was not "
        "left out"),
)  # fmt: skip


def aggregate_repeats(valid: "DataFrame", cases: "Index") -> "dict[str, DataFrame]":
    """Aggregate columns of valid repeats that columns of cases need, by name of the aggregation.

    Names are "max", "median" etc.; each frame has a row for each case id of `cases`.
    """
    used: dict[str, set[str]] = {}
    for column in CASES:
        if isinstance(column.compute, RepeatAggregate):
            used.setdefault(column.compute.how, set()).add(column.compute.column)
    found = {}
    for how, names in used.items():
        columns = valid[["case_id", *sorted(names)]]
        if how == FIRST:
            grouped = columns.drop_duplicates("case_id").set_index("case_id")
        else:
            grouped = columns.groupby("case_id", sort=False).agg(how)
        found[how] = grouped.reindex(cases)
    return found
