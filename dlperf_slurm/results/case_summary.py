"""The outcomes of a case -> rows of the run's frames, in place of the times of all ranks and steps.

A case is summarized where it is read. What is exact over all of its steps, as percentiles are,
takes all of its step times at once: a case is the most that has to be in memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.contract.peaks import OF_FRAMEWORK
from dlperf_slurm.contract.record import RankResult, Record
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import make_frame_of_values
from dlperf_slurm.results.notes import NoteRow, list_case_notes
from dlperf_slurm.results.peaks import GIGA
from dlperf_slurm.results.repeats import LATENCIES, REPEATS, RepeatData, find_slowness
from dlperf_slurm.results.stability import describe_stability
from dlperf_slurm.results.starts import find_start
from dlperf_slurm.stats.median import LATENCY_PERCENTILES, compute_latency, compute_median

if TYPE_CHECKING:
    from pandas import DataFrame

# of a rank's steps, in percent
STEP_PERCENTILES = (50, 90, 99, 100)

# the columns of the frames beside `repeats`
RANK_COLUMNS = ("case_id", "repeat", "host", "local_rank", "median_step_seconds")
DEVICE_COLUMNS = ("case_id", "host", "local_rank", "device_name", "ranks", "repeats",
    "slowest_repeats", "slowness", *(f"p{p}_seconds" for p in STEP_PERCENTILES))  # fmt: skip
POOLED_COLUMNS = ("case_id", "phase", "fewest", "together",
    *(f"p{percent}_seconds" for percent in LATENCY_PERCENTILES))  # fmt: skip
SUM_COLUMNS = ("case_id", "seconds", "gb_per_s")
NOTE_COLUMNS = ("case_id", "scope", "note")


@dataclass
class CaseSummary:
    """What was measured of one case, as rows of the run's frames (see `RunFrames`).

    `is_doubtful` says that its steps or repeats have a footnote.
    """

    repeats: list[list[object]] = field(default_factory=list)
    ranks: list[tuple[object, ...]] = field(default_factory=list)
    devices: list[tuple[object, ...]] = field(default_factory=list)
    pooled: list[tuple[object, ...]] = field(default_factory=list)
    sums: list[tuple[object, ...]] = field(default_factory=list)
    notes: list[NoteRow] = field(default_factory=list)
    is_doubtful: bool = False


@dataclass(frozen=True)
class RunFrames:
    """All that a run measured. The frames join by `case_id`, and by `repeat`.

    `ranks` has the median step of each rank of each repeat on several, `devices` the steps of each
    device over all repeats, the slowest first, `pooled` the percentiles over all batches of a case
    together, `sums` the all-reduces that were timed, `notes` what a reader has to know of a case.
    """

    repeats: "DataFrame"
    ranks: "DataFrame"
    devices: "DataFrame"
    pooled: "DataFrame"
    sums: "DataFrame"
    notes: "DataFrame"


def reduce_case(outcomes: CaseOutcomes) -> CaseOutcomes:
    """Return the case with its summary, and without the times of all ranks and steps.

    Its outcomes still say where and with what they were measured, and have the time of the slowest
    rank at each step.
    """
    shortened = tuple(map(_shorten, outcomes.outcomes))
    return replace(outcomes, outcomes=shortened, summary=summarize_case(outcomes))


def _shorten(outcome: Outcome) -> Outcome:
    record = None if outcome.record is None else abridge_record(outcome.record)
    beside = replace(outcome.beside, token_seconds=None)
    return replace(outcome, record=record, batch_seconds=(), rank_step_seconds=None, beside=beside)


def abridge_record(record: Record) -> Record:
    """Keep the slowest rank alone of those that drove devices of one name on a host."""
    slowest: dict[tuple[str, str], RankResult] = {}
    for rank in record.ranks:
        place = (rank.host, rank.device_name)
        if place not in slowest or rank.window_seconds > slowest[place].window_seconds:
            slowest[place] = rank
    return replace(record, ranks=tuple(slowest.values()))


def summarize_case(outcomes: CaseOutcomes) -> CaseSummary:
    """Reduce the step times [ranks, steps] of a case to rows."""
    case = outcomes.case
    doubts = describe_stability(outcomes)
    summary = CaseSummary(
        notes=list_case_notes(outcomes, doubts),
        is_doubtful=bool(doubts),
    )
    times = [_find_times(outcome) for outcome in outcomes.outcomes]
    repeats = [
        RepeatData(
            case,
            outcome,
            {name: compute_latency(seconds) for name, seconds in own.items()},
            _find_median_steps(outcome),
            find_start(outcome),
        )
        for outcome, own in zip(outcomes.outcomes, times)
    ]
    for repeat in repeats:
        summary.repeats.append([column.compute(repeat) for column in REPEATS])
        summary.ranks += _list_ranks(repeat)
        summary.sums += _list_sums(repeat)
    summary.pooled = list(_pool_latencies(case.case_id, times))
    summary.devices = _list_devices(repeats)
    return summary


def _find_times(outcome: Outcome) -> dict[str, list[float]]:
    """Find the seconds that latencies are of, by the names in LATENCIES; none in training."""
    if outcome.record is None or outcome.record.case.axes.mode != INFER:
        return {}
    found = {"latency": list(outcome.batch_seconds)} if outcome.batch_seconds else {}
    tokens = outcome.beside.token_seconds
    if tokens is not None:
        found["ttft"] = tokens[:, :, 0].ravel().tolist()
        if tokens.shape[2] > 1:
            found["tpot"] = tokens[:, :, 1:].mean(axis=2).ravel().tolist()
            found["itl"] = tokens[:, :, 1:].ravel().tolist()
    return found


def _find_median_steps(outcome: Outcome) -> Any:
    """Compute the median step of each rank, in seconds: [ranks]; None without step times."""
    import numpy

    seconds = outcome.rank_step_seconds
    if seconds is None:
        return None
    # half of the time of numpy.median
    ascending, count = numpy.sort(seconds, axis=1), seconds.shape[1]
    return (ascending[:, (count - 1) // 2] + ascending[:, count // 2]) / 2


def _pool_latencies(
    case_id: str, times: Sequence[dict[str, list[float]]]
) -> Iterator[tuple[object, ...]]:
    """Compute percentiles over the batches of all repeats together."""
    for name in LATENCIES:
        known = [own[name] for own in times if name in own]
        if known:
            together = [seconds for own in known for seconds in own]
            percentiles = compute_latency(together).percentiles
            yield (case_id, name, min(map(len, known)), len(together), *percentiles)


def _list_ranks(repeat: RepeatData) -> Iterator[tuple[object, ...]]:
    """List the ranks of a repeat on several devices, with their median step."""
    medians = repeat.median_steps
    if repeat.record is None or medians is None or len(medians) < 2:
        return
    for rank, seconds in zip(repeat.record.ranks, medians.tolist()):
        yield repeat.case.case_id, repeat.outcome.repeat, rank.host, rank.local_rank, seconds


@dataclass
class _Device:
    """A device over the repeats that it was in; `steps` are its rows of [ranks, steps]."""

    name: str
    ranks: set[int] = field(default_factory=set)
    slowness: list[float] = field(default_factory=list)
    slowest_repeats: int = 0
    steps: list[Any] = field(default_factory=list)


def _list_devices(repeats: Iterable[RepeatData]) -> list[tuple[object, ...]]:
    """List the devices of a case of several, the slowest first, with all their steps."""
    devices: dict[tuple[str, int], _Device] = {}
    case_id = ""
    for repeat in repeats:
        slowness = find_slowness(repeat.median_steps)
        if repeat.record is None or slowness is None:
            continue
        case_id = repeat.case.case_id
        is_longest = repeat.median_steps == repeat.median_steps.max()
        is_slowest = (is_longest & (is_longest.sum() == 1)).tolist()
        steps = repeat.outcome.rank_step_seconds
        for rank, slow, is_last, own in zip(
            repeat.record.ranks, slowness.tolist(), is_slowest, steps
        ):
            place = (rank.host, rank.local_rank)
            device = devices.setdefault(place, _Device(rank.device_name))
            device.ranks.add(rank.rank)
            device.slowness.append(slow)
            device.slowest_repeats += is_last
            device.steps.append(own)
    percentiles = _find_percentiles({place: one.steps for place, one in devices.items()})
    slowness = {place: compute_median(device.slowness) for place, device in devices.items()}
    return [
        (
            case_id, *place, device.name, " ".join(map(str, sorted(device.ranks))),
            len(device.slowness), device.slowest_repeats, slowness[place], *percentiles[place],
        )
        for place, device in sorted(devices.items(), key=lambda item: (-slowness[item[0]], item[0]))
    ]  # fmt: skip


def _find_percentiles(
    steps: Mapping[tuple[str, int], Sequence[Any]],
) -> dict[tuple[str, int], list[float]]:
    """Compute STEP_PERCENTILES of each device, at once of those with as many steps."""
    import numpy

    joined = {device: numpy.concatenate(own) for device, own in steps.items()}
    alike: dict[int, list[tuple[str, int]]] = {}
    for device, seconds in joined.items():
        alike.setdefault(len(seconds), []).append(device)
    found: dict[tuple[str, int], list[float]] = {}
    for devices in alike.values():
        rows = numpy.stack([joined[device] for device in devices])
        found.update(zip(devices, numpy.percentile(rows, STEP_PERCENTILES, axis=1).T.tolist()))
    return found


def _list_sums(repeat: RepeatData) -> Iterator[tuple[object, ...]]:
    """List the all-reduces on the path of gradients: on GPUs not those of MPI through the host."""
    record, peaks = repeat.record, repeat.outcome.beside.peaks
    if record is None or peaks is None:
        return
    for one in peaks.all_reduce:
        if one.seconds > 0 and (one.via == OF_FRAMEWORK or record.case.device == "cpu"):
            yield repeat.case.case_id, one.seconds, one.byte_count / one.seconds / GIGA


def make_run_frames(cases: Sequence[CaseOutcomes]) -> RunFrames:
    """Build the frames of a run from the summaries of its cases."""
    from pandas import DataFrame

    summaries = {c.case.case_id: c.summary or summarize_case(c) for c in cases}

    def join(name: str, columns: Sequence[str]) -> "DataFrame":
        rows = [row for one in summaries.values() for row in getattr(one, name)]
        return DataFrame(rows, columns=[*columns])

    repeats = [row for one in summaries.values() for row in one.repeats]
    return RunFrames(
        repeats=make_frame_of_values({c.name: c.dtype for c in REPEATS}, repeats),
        ranks=join("ranks", RANK_COLUMNS),
        devices=join("devices", DEVICE_COLUMNS),
        pooled=join("pooled", POOLED_COLUMNS),
        sums=join("sums", SUM_COLUMNS),
        notes=join("notes", NOTE_COLUMNS),
    )
