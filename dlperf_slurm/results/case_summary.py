"""The outcomes of a case -> rows of the run's data frames, without the times of every step.

A case is summarized in the process that reads it. Exact percentiles need all step times of the
case at once, so at most one case per process is in memory.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dlperf_slurm.contract.peaks import OF_FRAMEWORK
from dlperf_slurm.contract.record import RankResult, Record
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import (
    COUNT,
    FLAG,
    NUMBER,
    SHORT_COUNT,
    TEXT,
    make_frame_of_values,
)
from dlperf_slurm.results.notes import TABLE, list_case_notes
from dlperf_slurm.results.operation_counts import GIGA
from dlperf_slurm.results.provenance import describe_own_differences, list_facts, list_shared
from dlperf_slurm.results.repeats import LATENCIES, REPEATS
from dlperf_slurm.results.stability import describe_stability
from dlperf_slurm.stats.median import LATENCY_PERCENTILES, compute_latency, compute_median

if TYPE_CHECKING:
    from pandas import DataFrame

# percentiles of the steps of a device
STEP_PERCENTILES = (50, 90, 99, 100)
# devices to compute together: for more, the copy of their step times would take too much memory
MOST_TOGETHER = 256

# the values of `kind` in the data frame `provenance`
VERSION, MACHINE, JOB, HOST, DEVICE = "version", "machine", "job", "host", "device"

# the column types of the data frames of a run that are made of rows
FRAMES: Mapping[str, Mapping[str, str]] = {
    "repeats": {column.name: column.dtype for column in REPEATS},
    "devices": {
        "case_id": TEXT, "host": TEXT, "local_rank": COUNT, "device_name": TEXT, "ranks": TEXT,
        "repeats": COUNT, "slowest_repeats": COUNT, "slowness": NUMBER,
        **{f"p{percent}_seconds": NUMBER for percent in STEP_PERCENTILES},
    },
    "pooled": {
        "case_id": TEXT, "phase": TEXT, "fewest": COUNT, "together": COUNT,
        **{f"p{percent}_seconds": NUMBER for percent in LATENCY_PERCENTILES},
    },
    "sums": {
        "case_id": TEXT, "of_gradients": FLAG, "via": TEXT, "byte_count": COUNT, "seconds": NUMBER,
        "gb_per_s": NUMBER,
    },
    "notes": {"case_id": TEXT, "scope": TEXT, "note": "object"},
    "facts": {"case_id": TEXT, "name": TEXT, "value": TEXT, "text": TEXT},
    "provenance": {
        "case_id": TEXT, "kind": TEXT, "name": TEXT, "value": TEXT, "repeats": SHORT_COUNT,
    },
}  # fmt: skip


class CaseRows(NamedTuple):
    """The rows of one case in the run's data frames, by name of the frame in FRAMES.

    `hosts` and `ranks` are those of the frame `ranks`: [repeat, index in `hosts`, local rank,
    median step]. `slowest_seconds` is the slowest rank's time of each step: [measured steps of all
    repeats]. These arrays are bytes of float64, as the cache stores them.
    """

    case_id: str
    rows: Mapping[str, Sequence[Sequence[object]]]
    hosts: Sequence[str]
    ranks: bytes
    slowest_seconds: bytes


@dataclass(frozen=True)
class RunFrames:
    """All measurements of a run, as data frames that join by `case_id` and `repeat`.

    `ranks`: median step of each rank, for repeats with several ranks. `devices`: step percentiles
    of each device over all repeats, the slowest first. `pooled`: latency percentiles over the
    batches of all repeats together. `sums`: the timed all-reduces. `notes`: footnotes of a case.
    `facts`: versions and host facts, with a value if all hosts and repeats of the case share it.
    `provenance`: in how many repeats each value of each fact occurred. `slowest`: the slowest
    rank's time of each step.
    """

    repeats: "DataFrame"
    ranks: "DataFrame"
    devices: "DataFrame"
    pooled: "DataFrame"
    sums: "DataFrame"
    notes: "DataFrame"
    facts: "DataFrame"
    provenance: "DataFrame"
    slowest: "DataFrame"


def summarize_case(outcomes: CaseOutcomes) -> CaseRows:
    """Summarize a case as rows by name of the run's data frame, and the arrays of step times."""
    import numpy

    case_id, repeats = outcomes.case.case_id, outcomes.outcomes
    facts = list_facts(outcomes.records)
    notes = list_case_notes(outcomes, describe_stability(outcomes))
    notes += [(case_id, TABLE, text) for text in describe_own_differences(facts)]
    rows: dict[str, Sequence[Sequence[object]]] = {
        "repeats": [[column.compute(repeat) for column in REPEATS] for repeat in repeats],
        "devices": _list_devices(repeats),
        "pooled": [*_pool_latencies(case_id, repeats)],
        "sums": [row for repeat in repeats for row in _list_sums(repeat)],
        "notes": notes,
        "facts": [(case_id, *row) for row in list_shared(facts)],
        "provenance": [(case_id, *row) for row in _count_provenance(outcomes.records)],
    }
    seconds = [numpy.array(repeat.step_seconds, "float64") for repeat in repeats]
    slowest = numpy.concatenate([numpy.empty(0), *seconds])
    return CaseRows(case_id, rows, *_list_ranks(repeats), slowest.tobytes())


def _pool_latencies(case_id: str, repeats: Sequence[Outcome]) -> Iterator[tuple[object, ...]]:
    """Yield rows of `pooled`: latency percentiles over the batches of all repeats together."""
    import numpy

    for name in LATENCIES:
        known = [one.latency_seconds[name] for one in repeats if name in one.latency_seconds]
        if known:
            together = numpy.concatenate(known)
            percentiles = compute_latency(together).percentiles
            yield (case_id, name, min(map(len, known)), len(together), *percentiles)


def _list_ranks(repeats: Sequence[Outcome]) -> tuple[list[str], bytes]:
    """Return `hosts` and `ranks` of CaseRows: of the repeats on several ranks."""
    import numpy

    hosts: dict[str, int] = {}
    parts = [numpy.empty((4, 0))]
    for repeat in repeats:
        if repeat.record is not None and repeat.slowness is not None:
            ranks = repeat.record.ranks
            part = numpy.full((4, len(ranks)), float(repeat.repeat))
            part[1] = [hosts.setdefault(rank.host, len(hosts)) for rank in ranks]
            part[2:] = [rank.local_rank for rank in ranks], repeat.median_steps
            parts.append(part)
    return [*hosts], numpy.concatenate(parts, axis=1).tobytes()


def _list_devices(repeats: Sequence[Outcome]) -> list[tuple[object, ...]]:
    """Return a case's rows of the frame `devices`, the slowest device first; [] for one rank.

    A device is a (host, local rank). Its slowness is the median over the repeats of its rank's
    median step relative to that of the median rank.
    """
    rows: dict[tuple[str, int], list[tuple[int, int]]] = {}
    told: dict[tuple[str, int], list[tuple[RankResult, float, bool]]] = {}
    for number, repeat in enumerate(repeats):
        if repeat.record is None or repeat.slowness is None:
            continue
        is_longest = repeat.median_steps == repeat.median_steps.max()
        is_slowest = is_longest & (is_longest.sum() == 1)
        own = zip(repeat.record.ranks, repeat.slowness.tolist(), is_slowest.tolist())
        for row, one in enumerate(own):
            place = (one[0].host, one[0].local_rank)
            rows.setdefault(place, []).append((number, row))
            told.setdefault(place, []).append(one)
    percentiles = _find_percentiles(repeats, rows)
    found = []
    for place, ones in told.items():
        ranks, slowness, slowest = zip(*ones)
        numbers = " ".join(map(str, sorted({rank.rank for rank in ranks})))
        counts = (len(ones), sum(slowest), compute_median(slowness))
        found.append((*place, ranks[0].device_name, numbers, *counts, *percentiles[place]))
    found.sort(key=lambda row: (-row[6], *row[:2]))
    return [(repeats[0].case_id, *row) for row in found]


def _find_percentiles(
    repeats: Sequence[Outcome], rows: Mapping[tuple[str, int], Sequence[tuple[int, int]]]
) -> dict[tuple[str, int], list[float]]:
    """Return STEP_PERCENTILES of each device's step times, in seconds, over all its repeats.

    A device is (host, local rank); `rows` has the indices of its repeats, and of its rank in each.
    Devices that the same repeats used are computed together.
    """
    import numpy

    alike: dict[tuple[int, ...], list[tuple[str, int]]] = {}
    for device, own in rows.items():
        alike.setdefault(tuple(number for number, _ in own), []).append(device)
    found: dict[tuple[str, int], list[float]] = {}
    for numbers, devices in alike.items():
        for start in range(0, len(devices), MOST_TOGETHER):
            some = devices[start : start + MOST_TOGETHER]
            parts = [
                repeats[number].rank_step_seconds[[rows[device][at][1] for device in some]]
                for at, number in enumerate(numbers)
            ]
            joined = numpy.concatenate(parts, axis=1)
            joined.sort(axis=1)
            found.update(zip(some, _interpolate(joined, STEP_PERCENTILES).tolist()))
    return found


def _interpolate(ascending: Any, percentiles: Sequence[int]) -> Any:
    """Return these percentiles of each ascending row, equal to those of `numpy.percentile`.

    That function, which partitions the rows again, takes five times as long.
    """
    import numpy

    places = numpy.array(percentiles) / 100 * (ascending.shape[1] - 1)
    below = numpy.floor(places).astype(int)
    low, high = ascending[:, below], ascending[:, numpy.minimum(below + 1, ascending.shape[1] - 1)]
    share, span = places - below, high - low
    return numpy.where(share < 0.5, low + span * share, high - span * (1 - share))


def _list_sums(repeat: Outcome) -> Iterator[tuple[object, ...]]:
    """Yield rows of `sums`: the timed all-reduces of a repeat, the first of its gradients.

    On GPUs only those of the framework, not those of MPI through host memory. The rate is the bus
    bandwidth: what each rank sends, 2 (n - 1) / n of the size for n ranks, divided by the time.
    """
    record, peaks = repeat.record, repeat.sidecars.peaks
    if record is None or peaks is None:
        return
    sent_share = 2 * (1 - 1 / record.case.world_size)
    for index, one in enumerate(peaks.all_reduce):
        if one.seconds > 0 and (one.via == OF_FRAMEWORK or record.case.device == "cpu"):
            rate = sent_share * one.byte_count / one.seconds / GIGA
            yield repeat.case_id, index == 0, one.via, one.byte_count, one.seconds, rate


def _count_provenance(records: Sequence[Record]) -> Iterator[tuple[str, str, str, int]]:
    """Yield (kind, name, value, number of repeats) for each fact about a case's repeats.

    Facts are versions, machine facts, job variables (the value is "" for a repeat without the
    fact), hosts (the value is "") and devices (the name is the host, the value the device).
    """
    for kind, told in (
        (VERSION, [record.versions for record in records]),
        (MACHINE, [record.platform for record in records]),
        (JOB, [record.job for record in records]),
    ):
        for name in dict.fromkeys(name for own in told for name in own):
            for value, count in Counter(own.get(name, "") for own in told).items():
                yield kind, name, value, count
    ranks = [dict.fromkeys((rank.host, rank.device_name) for rank in r.ranks) for r in records]
    hosts = [dict.fromkeys(host for host, _ in own) for own in ranks]
    for host, count in Counter(host for own in hosts for host in own).items():
        yield HOST, host, "", count
    for (host, device), count in Counter(place for own in ranks for place in own).items():
        yield DEVICE, host, device, count


def make_run_frames(cases: Sequence[CaseRows]) -> RunFrames:
    """Build the data frames of a run from the rows of its cases, in their order."""
    import numpy
    from pandas import Categorical, DataFrame

    frames = {
        name: make_frame_of_values(dtypes, [row for case in cases for row in case.rows[name]])
        for name, dtypes in FRAMES.items()
    }
    case_ids = [case.case_id for case in cases]
    steps = [numpy.frombuffer(case.slowest_seconds) for case in cases]
    ranks = [numpy.frombuffer(case.ranks).reshape(4, -1) for case in cases]

    def repeat_ids(counts: list[int]) -> Categorical:
        return Categorical.from_codes(numpy.repeat(numpy.arange(len(cases)), counts), case_ids)

    frames["slowest"] = DataFrame(
        {
            "case_id": repeat_ids([*map(len, steps)]),
            "seconds": numpy.concatenate([numpy.empty(0), *steps]),
        }
    )
    hosts = sorted({host for case in cases for host in case.hosts})
    places = {host: place for place, host in enumerate(hosts)}
    codes = [
        numpy.array([places[host] for host in case.hosts], int)[own[1].astype(int)]
        for case, own in zip(cases, ranks)
    ]
    repeat, _, local_rank, seconds = numpy.concatenate([numpy.empty((4, 0)), *ranks], axis=1)
    frames["ranks"] = DataFrame(
        {
            "case_id": repeat_ids([own.shape[1] for own in ranks]),
            "repeat": repeat.astype(SHORT_COUNT),
            "host": Categorical.from_codes(numpy.concatenate([numpy.empty(0, int), *codes]), hosts),
            "local_rank": local_rank.astype(SHORT_COUNT),
            "median_step_seconds": seconds,
        }
    )
    return RunFrames(**frames)
