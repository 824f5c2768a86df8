"""Outcomes of a case -> how near it came to what its devices, and its network, could reach."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.peaks import NUMBER_FORMATS, OF_FRAMEWORK, AllReduce, Peaks
from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.collect import Outcome
from dlperf_slurm.results.device_peaks import find_published_peak
from dlperf_slurm.results.footnotes import Note, Remark
from dlperf_slurm.results.ratios import fill
from dlperf_slurm.stats.median import find_median
from dlperf_slurm.worker.models import load_model

if TYPE_CHECKING:
    from pandas import DataFrame

# The backward pass has a product for the input's gradient and one for the weight's.
TRAINING_FLOPS_FACTOR = 3
TERA = 1e12
GIGA = 1e9
# of a step, that of its backward pass, beside which gradients can be summed: two products of three
BACKWARD_SHARE = 1 - 1 / TRAINING_FLOPS_FACTOR


@dataclass(frozen=True)
class Reach:
    """What a device reaches, per device; None for what is not known.

    `measured_tflops` and `copied_gb_per_s` are medians over the repeats of the means over hosts,
    `all_reduce_seconds` of sums at the gradients' size, `all_reduce_gb_per_s` that size over them.
    """

    measured_tflops: Optional[float] = None
    published_tflops: Optional[float] = None
    copied_gb_per_s: Optional[float] = None
    all_reduce_seconds: Optional[float] = None
    all_reduce_gb_per_s: Optional[float] = None


def find_tflops(records: Sequence[Record], samples_per_s: Optional[float]) -> Optional[float]:
    """The work of a training per device, forward and backward, in 10^12 operations per second.

    None for a model of somebody else's script, whose work is not known.
    """
    if samples_per_s is None or records[0].case.log_format or records[0].case.axes.mode != TRAIN:
        return None
    case = records[0].case
    definition = load_model(case.model).Definition(**case.model_parameters)
    flops_per_sample = TRAINING_FLOPS_FACTOR * int(definition.flops_per_sample)
    return samples_per_s / case.world_size * flops_per_sample / TERA


def find_reach(outcomes: Sequence[Outcome]) -> Reach:
    """Over the sound repeats of a case."""
    told = list(list_peaks(outcomes))
    records = [outcome.record for outcome in outcomes if outcome.record is not None]
    sums = [one for record, peaks in told for one in _list_own_sums(record, peaks)]
    return Reach(
        measured_tflops=find_median(_average(p, "flops_per_s", TERA) for _, p in told),
        published_tflops=_find_published(records),
        copied_gb_per_s=find_median(_average(p, "copied_bytes_per_s", GIGA) for _, p in told),
        all_reduce_seconds=find_median(one.seconds for one in sums),
        all_reduce_gb_per_s=find_median(one.byte_count / one.seconds / GIGA for one in sums),
    )


def list_peaks(outcomes: Iterable[Outcome]) -> Iterator[tuple[Record, Peaks]]:
    """The peaks of all sound repeats that tell of them."""
    for outcome in outcomes:
        if outcome.record is not None and outcome.beside.peaks is not None:
            yield outcome.record, outcome.beside.peaks


def _average(peaks: Peaks, name: str, unit: float) -> Optional[float]:
    """Over the hosts; None unless all tell."""
    values = [getattr(device, name) / unit for device in peaks.devices]
    return sum(values) / len(values) if values and all(values) else None


def _find_published(records: Sequence[Record]) -> Optional[float]:
    """The published peak of the devices of all repeats; None where they differ or are unknown."""
    names = {rank.device_name for record in records for rank in record.ranks}
    if len(names) != 1 or records[0].case.device != "cuda":
        return None
    peak = find_published_peak(names.pop())
    numbers = NUMBER_FORMATS.get(records[0].case.axes.precision, "")
    return peak.tflops.get(numbers) if peak else None


def _list_own_sums(record: Record, peaks: Peaks) -> Iterator[AllReduce]:
    """The sums by the way that gradients take: MPI's through the host are not those of GPUs."""
    for one in peaks.all_reduce:
        if one.seconds > 0 and (one.via == OF_FRAMEWORK or record.case.device == "cpu"):
            yield one


def take_share(part: Optional[float], whole: Optional[float]) -> Optional[float]:
    """None where either is not known."""
    return None if part is None or not whole else part / whole


def add_reachable(frame: "DataFrame", axes: Sequence[str]) -> None:
    """Fill in the efficiencies that compute and communication allow, in a frame with ratios.

    Compute is the step of the same case on one device. In `reachable_efficiency` gradients are
    summed beside the backward pass as far as that lasts, in `unoverlapped_efficiency` after it.
    """
    alike = ["model", *(axis for axis in axes if axis != "topology")]
    is_base = (frame.topology == frame.baseline) & (frame.nodes * frame.devices_per_node == 1)
    keys = list(frame[alike].itertuples(index=False, name=None))
    steps = {
        keys[place]: _find_step_seconds(frame.first_record.iloc[place], rate)
        for place, rate in enumerate(frame.samples_per_s)
        if is_base.iloc[place] and rate
    }
    sums = [reach.all_reduce_seconds for reach in frame.reach]
    summed = {key for key, seconds in zip(keys, sums) if seconds is not None}
    pairs = [
        (steps.get(key), 0.0 if one_device and key in summed else seconds)
        for key, one_device, seconds in zip(keys, is_base, sums)
    ]
    fill(frame, "reachable_efficiency", (_reach(*pair, BACKWARD_SHARE) for pair in pairs))
    fill(frame, "unoverlapped_efficiency", (_reach(*pair, 0.0) for pair in pairs))


def _find_step_seconds(record: Record, samples_per_s: float) -> float:
    return record.case.global_batch_size / samples_per_s


def _reach(
    step_seconds: Optional[float], sum_seconds: Optional[float], hidden_share: float
) -> Optional[float]:
    """The part of a step that computes, when this share of compute can hide the sum."""
    if step_seconds is None or sum_seconds is None:
        return None
    exposed = max(0.0, sum_seconds - hidden_share * step_seconds)
    return step_seconds / (step_seconds + exposed)


def list_peak_notes(outcomes: Sequence[Outcome], tflops: Optional[float]) -> Iterator[Note]:
    """Why there is no peak, and why a case seems to be above it."""
    told = list(list_peaks(outcomes))
    for problem in dict.fromkeys(d.problem for _, p in told for d in p.devices if d.problem):
        yield f"the peak of its device is not known: {problem}"
    share = take_share(tflops, find_reach(outcomes).measured_tflops)
    if share is not None and share > 1:
        yield Remark(
            "at {:.0f} % of the measured peak: the device was slower while that was measured, or "
            "its largest product is not where it is best",
            (100 * share,),
        )
