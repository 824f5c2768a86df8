"""Every column of every frame: name, type, unit, meaning. docs/columns.md is made of them."""

from collections.abc import Iterable
from dataclasses import fields
from typing import NamedTuple

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.stats.median import LATENCY_PERCENTILES

TEXT = "string"
COUNT = "Int64"
NUMBER = "Float64"
FLAG = "boolean"
# of the frame of steps, which has millions of rows and no gaps
REPEATED_TEXT = "category"
SHORT_COUNT = "int32"
WHOLE_NUMBER = "float64"

# a throughput is in images/s of one model and in sequences/s of another
THROUGHPUT = "`unit`"

LATENCIES = ("avg", *(f"p{percent}" for percent in LATENCY_PERCENTILES))


class Column(NamedTuple):
    """A column of a frame; `kind` is its pandas dtype, `unit` is empty for texts and flags."""

    name: str
    kind: str
    unit: str
    meaning: str


def _declare_bounds(name: str, unit: str, meaning: str) -> tuple[Column, Column, Column]:
    """A number, and the two ends of its interval."""
    return (
        Column(name, NUMBER, unit, meaning),
        Column(f"{name}_low", NUMBER, unit, f"lower end of the 95 % interval of `{name}`"),
        Column(f"{name}_high", NUMBER, unit, f"upper end of the 95 % interval of `{name}`"),
    )


def _describe_latency(name: str) -> str:
    return "mean latency" if name == "avg" else f"{name[1:]} % latency"


_AXES = {
    "framework": ("", "framework, by the name of its adapter"),
    "topology": ("", "nodes x devices per node: 2n8g is 2 nodes with 8 devices each"),
    "batch_size_per_device": ("samples", "per device, as the matrix has it: a number, max, or a "
        "ladder as 256 -> 224"),
    "precision": ("", "fp32, tf32, amp-bf16, amp-fp16, bf16 or fp16"),
    "compiler": ("", "graph compiler, or none"),
    "memory_format": ("", "channels_last or default"),
    "gradient_sync": ("", "how gradients of ranks come together: native, horovod, ..."),
    "clip_global_norm": ("", "whether gradients are clipped by their global norm"),
    "mode": ("", "train or infer"),
    "script": ("", "whose script was measured: worker, or the name of another's"),
    "data": ("", "where batches come from: device, host, dataset, folder, ..."),
    "data_workers": ("processes or threads", "that make batches, per rank"),
    "prefetch_batches": ("batches", "made ahead, per rank"),
    "optimizer": ("", "default is the model's own"),
    "gradient_accumulation": ("batches", "per update"),
    "loss_scale": ("", "constant loss scale; missing where it is dynamic"),
}  # fmt: skip


# an axis of other types has words too: "max"
_KINDS: dict[object, str] = {str: TEXT, int: COUNT, bool: FLAG}


def _declare_axes() -> Iterable[Column]:
    for axis in fields(Axes):
        # a dynamic loss scale is none
        kind = COUNT if axis.name == "loss_scale" else _KINDS.get(axis.type, TEXT)
        yield Column(axis.name, kind, *_AXES.get(axis.name, ("", "")))


_CASE_ID = Column("case_id", TEXT, "", "the case; it joins frames, and runs of one matrix")
_MODEL = Column("model", TEXT, "", "model, by the name of its definition")
_REPEAT = Column("repeat", COUNT, "", "which of the independent repeats, from 1")
_COMPUTED = Column(
    *("computed_samples_per_s", NUMBER, THROUGHPUT),
    "throughput without the time that ranks waited for data; missing of logs, and where only the "
    "host's waiting is known",
)
_DATA_WAITING = Column(
    *("data_waiting_share", NUMBER, "share of 1"),
    "time waited for data over the window, of the rank that waited longest",
)

CASES: tuple[Column, ...] = (
    _CASE_ID,
    _MODEL,
    *_declare_axes(),
    Column("batch_sizes_measured", TEXT, "samples", "what was measured, per device, ascending: "
        "several where repeats of a search found several"),
    Column("nodes", COUNT, "nodes", "of the topology"),
    Column("devices_per_node", COUNT, "devices", "of the topology"),
    Column("world_size", COUNT, "ranks", "nodes x devices_per_node: one rank per device"),
    Column("model_parameters", TEXT, "", "sizes of the model as JSON, as in its [model] table"),
    Column("parameter_count", COUNT, "parameters", "of the model that was measured"),
    Column("warmup_steps", COUNT, "steps", "before the window, kept apart"),
    Column("measured_steps", COUNT, "steps", "in the window"),
    Column("hardware", TEXT, "", "devices of the first sound repeat, on how many nodes"),
    Column("unit", TEXT, "", "of the throughputs: images/s, sequences/s, ..."),
    Column("samples_per_s", NUMBER, THROUGHPUT, "throughput, median over the sound repeats"),
    Column("interval_low", NUMBER, THROUGHPUT, "lower end of the 95 % interval of the median; "
        "missing where repeats are too few for one"),
    Column("interval_high", NUMBER, THROUGHPUT, "upper end of the 95 % interval of the median"),
    Column("smallest", NUMBER, THROUGHPUT, "lowest throughput of any repeat"),
    Column("largest", NUMBER, THROUGHPUT, "highest throughput of any repeat"),
    Column("repeats_measured", COUNT, "repeats", "with a sound record"),
    Column("repeats_planned", COUNT, "repeats", "asked for; 0 of a case that was left out"),
    Column("baseline", TEXT, "", "smallest topology measured: `speedup` is relative to it"),
    *_declare_bounds("speedup", "ratio", "throughput over that of `baseline`"),
    *_declare_bounds("weak_scaling_efficiency", "share of 1", "`speedup` per device over that of "
        "`baseline`, at the same batch size per device"),
    Column("tflops_per_device", NUMBER, "10^12 FLOP/s", "work that the model's definition asks "
        "for, over the time that it took, per device; of training"),
    Column("reference_precision", TEXT, "", "fp32, or tf32 where that was not measured: "
        "`precision_speedup` is relative to it"),
    *_declare_bounds("precision_speedup", "ratio", "throughput over that in "
        "`reference_precision`, at the same topology"),
    *(column for name in LATENCIES for column in _declare_bounds(f"latency_{name}_ms", "ms",
        f"{_describe_latency(name)} of an inference batch, median over the repeats")),
    *(column for name in LATENCIES for column in _declare_bounds(f"latency_{name}_speedup",
        "ratio", f"{_describe_latency(name)} in `reference_precision` over this one")),
    _COMPUTED,
    _DATA_WAITING,
    *_declare_bounds("relative_to_device_data", "ratio", "throughput over that of the same case "
        "whose batch is on the device"),
    Column("top1_average", NUMBER, "share of 1", "top-1 on the validation samples after the last "
        "epoch, mean over seeds"),
    Column("top1_deviation", NUMBER, "share of 1", "standard deviation (n - 1) over seeds"),
    Column("top1_lowest", NUMBER, "share of 1", "of all seeds"),
    Column("top1_highest", NUMBER, "share of 1", "of all seeds"),
    Column("epochs", NUMBER, "epochs", "that were run, median over seeds"),
    Column("seeds_at_target", COUNT, "seeds", "that reached the target; missing without one"),
    Column("train_seconds", NUMBER, "s", "from the first step to the end of the last epoch's "
        "validation, median over seeds"),
    *_declare_bounds("train_speedup", "ratio", "time to train in the full precision over this one"),
    Column("imbalance", NUMBER, "ratio", "slowest rank's median step over the median rank's"),
    Column("waiting_share", NUMBER, "share of 1", "part of a step that ranks on average wait for "
        "the slowest one; of training"),
    Column("slowest_host", TEXT, "", "host of the slowest rank"),
    # one device may have had several ranks
    Column("slowest_rank", TEXT, "", "the slowest rank, by number; several where a device had "
        "another rank in another repeat"),
    Column("peak_memory_bytes", COUNT, "bytes", "the most that any rank took in any repeat"),
    Column("utilization", NUMBER, "share of 1", "use of the devices, mean over the window"),
    Column("power_watts", NUMBER, "W", "of all devices together, or of the CPUs of all hosts "
        "where these are the devices; median over the repeats"),
    Column("samples_per_joule", NUMBER, "samples/J", "throughput over power"),
    Column("clock_mhz", NUMBER, "MHz", "clock of the devices, mean over them and the window"),
    Column("least_clock_mhz", NUMBER, "MHz", "lowest sample of any device's clock"),
    Column("problem", TEXT, "", "why there is no figure: OOM, failed, invalid, missing, not run"),
    Column("reason", TEXT, "", "why the case was left out of the run; empty if it was not"),
    Column("notes", TEXT, "", "what tables have as footnotes, joined by semicolons"),
)  # fmt: skip

REPEATS: tuple[Column, ...] = (
    _CASE_ID,
    _REPEAT,
    Column("attempt", COUNT, "", "which try of the repeat has the record, from 1"),
    Column("status", TEXT, "", "ok, or why there is no figure: OOM, failed, invalid, missing"),
    Column("problem", TEXT, "", "the whole line of what is wrong; empty if nothing is"),
    Column("batch_size_per_device", COUNT, "samples", "that was measured, per device"),
    Column("global_batch_size", COUNT, "samples", "of one step, over all ranks"),
    Column("samples_per_s", NUMBER, "samples/s", "global_batch_size x measured steps / "
        "`window_seconds`"),
    Column("window_seconds", NUMBER, "s", "between the fences around the measured steps, of the "
        "slowest rank"),
    *(Column(f"latency_{name}_ms", NUMBER, "ms", f"{_describe_latency(name)} of a batch, over "
        "all batches of all ranks; of inference") for name in LATENCIES),
    Column("computed_samples_per_s", NUMBER, "samples/s", _COMPUTED.meaning),
    _DATA_WAITING,
    Column("epochs", COUNT, "epochs", "that were run; of training to accuracy"),
    Column("top1", NUMBER, "share of 1", "on the validation samples after the last epoch"),
    Column("train_seconds", NUMBER, "s", "from the first step to the end of the last epoch's "
        "validation"),
    Column("peak_memory_bytes", COUNT, "bytes", "the most that any rank took"),
    Column("power_watts", NUMBER, "W", "of all devices together, mean over the window"),
    Column("stolen_share", NUMBER, "share of 1", "time that a hypervisor gave to others while "
        "CPUs had work, of the host that lost most"),
    Column("clock", TEXT, "", "where step times come from: host, or the device's events"),
    Column("hosts", TEXT, "", "in the order of ranks, separated by blanks"),
    Column("started_at", TEXT, "", "UTC, as 2024-05-01T12:00:00Z"),
    Column("ended_at", TEXT, "", "UTC, as 2024-05-01T12:00:00Z"),
)  # fmt: skip

RANKS: tuple[Column, ...] = (
    _CASE_ID,
    _REPEAT,
    Column("rank", COUNT, "", "MPI rank, from 0"),
    Column("local_rank", COUNT, "", "rank on its host, from 0"),
    Column("host", TEXT, "", "where the rank ran"),
    Column("device_name", TEXT, "", "what the rank drove"),
    Column("window_seconds", NUMBER, "s", "between the fences around the measured steps"),
    Column("data_wait_seconds", NUMBER, "s", "waited for data in the window"),
    Column("median_step_seconds", NUMBER, "s", "median of the measured steps; missing of logs"),
    Column("peak_memory_bytes", COUNT, "bytes", "that the rank took"),
    Column("final_loss", NUMBER, "", "loss after the last step"),
)

STEPS: tuple[Column, ...] = (
    _CASE_ID._replace(kind=REPEATED_TEXT),
    _REPEAT._replace(kind=SHORT_COUNT),
    Column("rank", SHORT_COUNT, "", "MPI rank, from 0"),
    Column("step", SHORT_COUNT, "", "measured step, from 1"),
    Column("seconds", WHOLE_NUMBER, "s", "time of the step, by the record's clock"),
)

COMPARISON: tuple[Column, ...] = (
    _CASE_ID,
    _MODEL,
    Column("quantity", TEXT, "", "throughput or mean latency"),
    Column("unit", TEXT, "", "of both medians"),
    Column("median_a", NUMBER, THROUGHPUT, "median over the sound repeats of run A"),
    Column("median_b", NUMBER, THROUGHPUT, "median over the sound repeats of run B"),
    Column("repeats_a", COUNT, "repeats", "of run A with a sound record"),
    Column("repeats_b", COUNT, "repeats", "of run B with a sound record"),
    *_declare_bounds("speed_ratio", "ratio", "speed of B over that of A, also for latencies: "
        "below 1 B is slower"),
    Column("p_value", NUMBER, "", "of the rank-sum test, adjusted for all comparisons (Holm)"),
    Column("verdict", TEXT, "", "faster, slower, no difference, too few repeats, not comparable"),
    Column("reason", TEXT, "", "why there is no verdict on the speed; empty if there is one"),
    Column("changes", TEXT, "", "what else is not the same in both runs, joined by semicolons"),
)  # fmt: skip

HISTORY: tuple[Column, ...] = (
    _CASE_ID,
    Column("parameters", TEXT, "", "sizes of the model as JSON; empty where no record tells"),
    Column("framework", TEXT, *_AXES["framework"]),
    _MODEL,
    *(Column(name, TEXT, *_AXES[name]) for name in ("topology", "precision")),
    Column("batch_size", TEXT, *_AXES["batch_size_per_device"]),
    Column("mode", TEXT, *_AXES["mode"]),
    Column("script", TEXT, *_AXES["script"]),
    Column("run_id", TEXT, "", "the run; ids begin with its time"),
    Column("run_dir", TEXT, "", "where the run lies"),
    Column("created_at", TEXT, "", "UTC, as 2024-05-01T12:00:00Z"),
    Column("site", TEXT, "", "name of the site"),
    Column("unit", TEXT, "", "of the throughputs: images/s, sequences/s, ..."),
    Column("samples_per_s", NUMBER, THROUGHPUT, "throughput, median over the sound repeats"),
    Column("interval_low", NUMBER, THROUGHPUT, "lower end of the 95 % interval of the median"),
    Column("interval_high", NUMBER, THROUGHPUT, "upper end of the 95 % interval of the median"),
    Column("repeats_measured", COUNT, "repeats", "with a sound record"),
    Column("repeats_planned", COUNT, "repeats", "asked for"),
    *_declare_bounds("speed_ratio", "ratio", "throughput over that of the last run before with a "
        "figure of the case"),
    Column("p_value", NUMBER, "", "of the rank-sum test, adjusted for all runs of the case (Holm)"),
    Column("verdict", TEXT, "", "against that run: faster, slower, no difference, too few repeats, "
        "not comparable; empty of the first"),
    Column("reason", TEXT, "", "why there is no verdict on the speed; empty if there is one"),
    Column("changes", TEXT, "", "what else is not the same as in that run, joined by semicolons"),
    Column("software", TEXT, "", "versions, drivers, and the tool's own"),
    Column("state", TEXT, "", "why there is no figure: OOM, failed, invalid, missing"),
    Column("problem", TEXT, "", "what is wrong with any of the repeats; empty if nothing is"),
)  # fmt: skip


def list_kinds(columns: Iterable[Column]) -> dict[str, str]:
    """The pandas dtype of each column, in their order."""
    return {column.name: column.kind for column in columns}


# by the names that `RunResults.frame` takes
RUN_FRAMES = {"cases": CASES, "repeats": REPEATS, "ranks": RANKS, "steps": STEPS}
