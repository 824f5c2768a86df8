"""Valid records -> the data frame `repeats`: one row per planned repeat, measured or not.

Each column is a function of one repeat: of its record, or of the other files of the attempt.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Optional

from dlperf_slurm.contract.axes import ON_DEVICE, TRAIN
from dlperf_slurm.contract.peaks import NUMBER_FORMATS
from dlperf_slurm.contract.phases import MEANINGS
from dlperf_slurm.contract.record import OK, WHOLE_JOB, Record
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.results.collect import QUEUE, TO_FIRST_STEP_SUM, Outcome
from dlperf_slurm.results.columns import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    Column,
    hide_column,
)
from dlperf_slurm.results.device_peaks import find_published_tflops
from dlperf_slurm.results.interference import (
    find_worst,
    is_noisy,
    list_gpu_users,
    list_other_processes,
)
from dlperf_slurm.results.operation_counts import (
    GIGA,
    TERA,
    count_decoded_bytes,
    count_training_flops,
)
from dlperf_slurm.results.resource_usage import (
    compute_node_power_watts,
    compute_peak_memory,
    compute_power_watts,
    is_usage_known,
    list_telemetry,
)
from dlperf_slurm.stats.median import LATENCY_NAMES
from dlperf_slurm.worker.clock import CLOCKS, HostClock
from dlperf_slurm.worker.models import load_model

# for each kind of inference latency, by the prefix of its columns: its meaning and counted unit
LATENCIES = {
    "latency": ("of a batch, over all batches of all ranks; inference only", "batches"),
    "ttft": ("time to first token; for text generation", "prefills"),
    "tpot": ("mean time per output token after the first; for text generation", "decodings"),
    "itl": ("time between successive output tokens; for text generation", "tokens"),
}
# phases of a job's start, in order, with their meaning
PHASES = {
    QUEUE: "from submission to the start of the job script or array task, by the clocks of two "
    "hosts, in whole seconds",
    **MEANINGS,
}


def of_record(find: Callable[[Record], object]) -> Callable[[Outcome], object]:
    """Return a function of a repeat that applies `find` to its record; None without a record."""
    return lambda repeat: None if repeat.record is None else find(repeat.record)


def hide_of_record(name: str, dtype: str, find: Callable[[Record], object]) -> Column:
    """Declare a column that no file has, computed from the record of a repeat."""
    return hide_column(name, dtype, of_record(find))


def describe_latency(part: str) -> str:
    """Return the words for a name in LATENCY_NAMES: "99th-percentile latency" for "p99"."""
    return "mean latency" if part == "avg" else f"{part[1:]}th-percentile latency"


def _declare_latencies() -> Iterator[Column]:
    """Yield a column for mean and percentiles of each latency, such as `ttft_p99_seconds`."""
    for place, part in enumerate(LATENCY_NAMES):
        meaning = f"{describe_latency(part)} {LATENCIES['latency'][0]}"
        compute = partial(_get_latency, "latency", place, 1000.0)
        yield Column(f"latency_{part}_ms", NUMBER, "ms", meaning, compute)
    for name in LATENCIES:
        for place, part in enumerate(LATENCY_NAMES):
            yield hide_column(
                f"{name}_{part}_seconds", NUMBER, partial(_get_latency, name, place, 1.0)
            )


def _get_latency(name: str, place: int, factor: float, repeat: Outcome) -> Optional[float]:
    """Return a latency of a repeat, multiplied by `factor`; None if unknown.

    `name` is in LATENCIES; `place` is the index in LATENCY_NAMES of the mean or percentile.
    """
    found = repeat.latencies.get(name)
    return factor * found.values[place] if found else None


def _average_devices(record: Record, name: str) -> Optional[float]:
    """Compute the mean of a telemetry field over the sampled devices; None without samples."""
    values = [value for one in list_telemetry(record) for value in [getattr(one, name)] if value]
    return sum(values) / len(values) if values else None


def _find_samples_per_joule(record: Record) -> Optional[float]:
    """Divide throughput by power; None with epochs, whose power includes validations."""
    power = compute_power_watts(record)
    return record.samples_per_s / power if power and not record.epochs else None


def _find_node_joules_per_sample(record: Record) -> Optional[float]:
    """Divide the power of the nodes by throughput; None with epochs, as for the devices."""
    power = compute_node_power_watts(record)
    return power / record.samples_per_s if power and not record.epochs else None


def _find_joules_per_sample(record: Record) -> Optional[float]:
    """Return the joules per sample of the devices; None unless that of the nodes is known too."""
    samples = _find_samples_per_joule(record) if compute_node_power_watts(record) else None
    return 1 / samples if samples else None


def _average_peak(name: str, unit: float, repeat: Outcome) -> Optional[float]:
    """Compute the mean of a measured peak over a repeat's devices; None unless all report it.

    `name` is a field of the device's peaks, which is divided by `unit`.
    """
    peaks = repeat.sidecars.peaks
    values = [getattr(one, name) / unit for one in peaks.devices] if peaks else []
    return sum(values) / len(values) if values and all(values) else None


def _find_published_tflops(record: Record) -> Optional[float]:
    """Return the vendor's peak in the precision of the case; None if unknown or devices differ."""
    names = {rank.device_name for rank in record.ranks}
    if len(names) != 1 or record.case.device != "cuda":
        return None
    numbers = NUMBER_FORMATS.get(record.case.axes.precision, "")
    return find_published_tflops(names.pop()).get(numbers)


def _find_rank_waiting(repeat: Outcome) -> Optional[float]:
    """Compute the mean share of a step that ranks wait for the slowest one.

    1 - mean over steps of (mean over ranks / maximum over ranks). None for one rank, without step
    times, and in inference.
    """
    import numpy

    seconds, record = repeat.rank_step_seconds, repeat.record
    if seconds is None or len(seconds) < 2 or record is None or record.case.axes.mode != TRAIN:
        return None
    slowest, mean = seconds.max(axis=0), seconds.mean(axis=0)
    # no waiting in steps of 0 s
    alike = numpy.ones_like(slowest)
    return float(1 - numpy.divide(mean, slowest, out=alike, where=slowest > 0).mean())


def _count_decoded_gb(repeat: Outcome) -> Optional[float]:
    """Return the gigabytes (10^9 bytes) that one decoding step reads; None without token times."""
    if repeat.record is None or repeat.sidecars.token_seconds is None:
        return None
    return count_decoded_bytes(repeat.record.case) / GIGA


def is_wait_known(record: Record) -> bool:
    """Return whether the time that a rank's host waited for data is idle time of its device.

    It is if the host synchronizes with the device after each batch: steps are timed by the host's
    clock, without gradient accumulation. True as well for data on the device, with a wait of 0.
    """
    is_awaited = record.clock.name == HostClock.name and record.case.axes.gradient_accumulation == 1
    return is_awaited or record.case.axes.data == ON_DEVICE


def _has_wait_time(record: Record) -> bool:
    """Return whether the time waiting for data is known; external scripts' logs have none."""
    return record.case.log_format is None and is_wait_known(record)


def _find_waiting_share(record: Record) -> Optional[float]:
    """Return the largest share of the window that a rank waited for data; None if unknown."""
    if not _has_wait_time(record):
        return None
    return max(rank.data_wait_seconds / rank.window_seconds for rank in record.ranks)


def classify_problem(*problems: str) -> str:
    """Return the worst of the problems of repeats as a word: OOM, failed, invalid or missing."""
    for sign, word in (("out of memory", "OOM"), ("failed", "failed"), ("invalid", "invalid")):
        if any(problem.startswith(sign) for problem in problems):
            return word
    return "missing"


def describe_hardware(record: Record) -> str:
    """Describe the devices of a record and the number of nodes: "16x NVIDIA H200, 2 nodes".

    On CPUs ranks may share one: "2 ranks on 1x AMD EPYC, 1 node".
    """
    case = record.case
    nodes = count_things(case.nodes, "node")
    if case.device == "cpu":
        sockets = record.platform.get("cpu_sockets", "")
        count = f"{int(sockets) * case.nodes}x " if sockets.isdecimal() else ""
        model = record.platform.get("cpu_model") or "cpu"
        return f"{count_things(case.world_size, 'rank')} on {count}{model}, {nodes}"
    names = Counter(rank.device_name for rank in record.ranks if rank.device_name)
    if [rank.rank for rank in record.ranks] == [WHOLE_JOB]:
        names = Counter(dict.fromkeys(names, case.world_size))
    devices = " and ".join(f"{count}x {name}" for name, count in sorted(names.items()))
    return f"{devices or 'not recorded'}, {nodes}"


def find_tokens_per_sample(record: Record) -> Optional[int]:
    """Return the tokens per sample; None if a model's throughput is only in samples.

    For text generation it is the number of generated tokens, without the prompt. None if the model
    of an external script does not state it.
    """
    if record.case.log_format:
        return record.case.tokens_per_sample or None
    if record.case.axes.is_generation:
        return record.case.axes.output_tokens
    definition = load_model(record.case.model).Definition(**record.case.model_parameters)
    return int(definition.tokens_per_sample) or None


COMPUTED_MEANING = (
    "throughput without the time that ranks waited for data; missing for imported logs, and if "
    "waiting was timed on the host only"
)
WAITING_MEANING = (
    "share of the measured time spent waiting for data, by the rank that waited longest"
)

REPEATS: tuple[Column, ...] = (
    Column("case_id", TEXT, "", "id of the case, the same in all frames and in all runs of one "
        "matrix", lambda repeat: repeat.case_id),
    Column("repeat", COUNT, "", "number of the independent repeat, from 1",
        lambda repeat: repeat.repeat),
    Column("attempt", COUNT, "", "number of the attempt that wrote the record, counted from 1",
        of_record(lambda record: record.case.attempt)),
    Column("status", TEXT, "", "ok, or why the repeat has no result: OOM, failed, invalid, missing",
        lambda repeat: classify_problem(repeat.problem) if repeat.problem else OK),
    Column("problem", TEXT, "", "error message; empty if there was no error",
        lambda repeat: repeat.problem),
    Column("batch_size_per_device", COUNT, "samples", "batch size that was measured, per device",
        of_record(lambda record: record.case.axes.batch_size)),
    Column("global_batch_size", COUNT, "samples", "samples of one step, over all ranks",
        of_record(lambda record: record.case.global_batch_size)),
    Column("samples_per_s", NUMBER, "samples/s", "throughput: global_batch_size x measured steps "
        "/ `window_seconds`", of_record(lambda record: record.samples_per_s)),
    Column("steps", COUNT, "steps", "number of measured steps, more than planned if "
        "min_measured_seconds needs more; missing for training to accuracy",
        of_record(lambda record: None if record.epochs else record.steps)),
    Column("window_seconds", NUMBER, "s", "time of all measured steps, on the slowest rank",
        of_record(lambda record: record.window_seconds)),
    *_declare_latencies(),
    Column("computed_samples_per_s", NUMBER, "samples/s", COMPUTED_MEANING,
        of_record(lambda r: r.computed_samples_per_s if _has_wait_time(r) else None)),
    Column("data_waiting_share", NUMBER, "fraction", WAITING_MEANING,
        of_record(_find_waiting_share)),
    Column("epochs", COUNT, "epochs", "number of epochs that were run; only for training to "
        "accuracy", of_record(lambda record: len(record.epochs) or None)),
    Column("top1", NUMBER, "fraction", "top-1 accuracy on the validation samples after the "
        "last epoch", of_record(lambda record: record.epochs[-1].top1 if record.epochs else None)),
    Column("train_seconds", NUMBER, "s", "time from the first step to the end of the last "
        "validation",
        of_record(lambda record: record.epochs[-1].elapsed_seconds if record.epochs else None)),
    Column("peak_memory_bytes", COUNT, "B", "largest peak memory of any rank",
        of_record(compute_peak_memory)),
    Column("power_watts", NUMBER, "W", "power of all devices together, mean over the "
        "measured steps", of_record(lambda record: compute_power_watts(record) or None)),
    Column("node_power_watts", NUMBER, "W", "power of all nodes together, mean over the "
        "measured steps", of_record(lambda record: compute_node_power_watts(record) or None)),
    Column("stolen_share", NUMBER, "fraction", "share of CPU time that a hypervisor withheld "
        "(steal), on the most affected host",
        of_record(lambda record: record.stolen_share if record.telemetry else None)),
    Column("run_cpu_share", NUMBER, "fraction", "CPU time of this run, as a share of all CPUs, "
        "on the same host as `other_cpu_share`",
        lambda repeat: getattr(find_worst(repeat), "run_share", None)),
    Column("other_cpu_share", NUMBER, "fraction", "CPU time of other processes, as a share of "
        "all CPUs, on the host where it is highest",
        lambda repeat: getattr(find_worst(repeat), "other_share", None)),
    *(Column(f"phase_{name}_seconds", NUMBER, "s", f"on rank 0: {meaning}",
        lambda repeat, name=name: repeat.phases.get(name)) for name, meaning in PHASES.items()),
    Column("to_first_step_seconds", NUMBER, "s", "time from the start of the job script or array "
        "task to the end of the first step, on rank 0",
        lambda repeat: repeat.phases.get(TO_FIRST_STEP_SUM)),
    Column("clock", TEXT, "", "source of the step times: " + ", ".join(CLOCKS),
        of_record(lambda record: record.clock.name)),
    Column("hosts", TEXT, "", "host names in the order of ranks, separated by spaces",
        of_record(lambda record: " ".join(dict.fromkeys(rank.host for rank in record.ranks)))),
    Column("started_at", TIME, "", "when the repeat started, in UTC",
        of_record(lambda r: r.started_at)),
    Column("ended_at", TIME, "", "when the repeat ended, in UTC", of_record(lambda r: r.ended_at)),
    hide_of_record("hardware", TEXT, describe_hardware),
    # the distinct names, one per line
    hide_of_record("devices", TEXT,
        lambda r: "\n".join(sorted({rank.device_name for rank in r.ranks}))),
    hide_of_record("model_parameters", TEXT,
        lambda r: json.dumps(r.case.model_parameters, sort_keys=True)),
    hide_of_record("parameter_count", COUNT, lambda r: r.parameter_count),
    hide_of_record("tokens_per_sample", COUNT, find_tokens_per_sample),
    hide_of_record("flops_per_sample", NUMBER, count_training_flops),
    hide_column("decoded_gb", NUMBER, _count_decoded_gb),
    hide_of_record("target_top1", NUMBER,
        lambda r: r.case.training.target_top1 if r.epochs else None),
    hide_of_record("utilization", NUMBER, lambda r: _average_devices(r, "mean_utilization")),
    hide_of_record("clock_mhz", NUMBER, lambda r: _average_devices(r, "mean_clock_mhz")),
    hide_of_record("least_clock_mhz", NUMBER,
        lambda r: min(filter(None, (t.least_clock_mhz for t in list_telemetry(r))), default=None)),
    hide_of_record("samples_per_joule", NUMBER, _find_samples_per_joule),
    hide_of_record("joules_per_sample", NUMBER, _find_joules_per_sample),
    hide_of_record("node_joules_per_sample", NUMBER, _find_node_joules_per_sample),
    hide_of_record("is_usage_known", FLAG, is_usage_known),
    hide_column("measured_peak_tflops", NUMBER, partial(_average_peak, "flops_per_s", TERA)),
    hide_column("copied_gb_per_s", NUMBER, partial(_average_peak, "copied_bytes_per_s", GIGA)),
    hide_of_record("published_peak_tflops", NUMBER, _find_published_tflops),
    hide_column("is_unhealthy", FLAG, lambda repeat: repeat.is_unhealthy),
    hide_column("is_noisy", FLAG, is_noisy),
    hide_column("other_processes", TEXT, list_other_processes),
    hide_column("gpu_users", TEXT, lambda repeat: "\n".join(list_gpu_users(repeat))),
    hide_column("has_steps", FLAG, lambda repeat: repeat.rank_step_seconds is not None),
    hide_column("imbalance", NUMBER,
        lambda repeat: None if repeat.slowness is None else float(repeat.slowness.max())),
    hide_column("waiting_share", NUMBER, _find_rank_waiting),
)  # fmt: skip
