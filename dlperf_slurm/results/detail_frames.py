"""Outcomes -> frames below that of the cases: a row per repeat, per rank, per step."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from dlperf_slurm.contract.phases import MEANINGS
from dlperf_slurm.contract.record import OK, RankResult, Record
from dlperf_slurm.results.cases import name_repeat_problem
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import (
    CASE_ID,
    COMPUTED,
    COUNT,
    DATA_WAITING,
    NUMBER,
    REPEATED_TEXT,
    SHORT_COUNT,
    TEXT,
    TIME,
    Column,
    describe_latency,
    follow,
    list_values,
    make_frame,
    make_frame_of_values,
)
from dlperf_slurm.results.data_waits import find_computed_rate, find_waiting_share
from dlperf_slurm.results.neighbours import find_worst
from dlperf_slurm.results.starts import QUEUE, QUEUE_MEANING, find_start
from dlperf_slurm.results.usage import find_peak_memory, find_power_watts
from dlperf_slurm.stats.median import LATENCY_NAMES
from dlperf_slurm.worker.clock import CLOCKS

if TYPE_CHECKING:
    from pandas import DataFrame


class _Rank(NamedTuple):
    outcome: Outcome
    result: RankResult
    median_step_seconds: Optional[float]


def _name_status(outcome: Outcome) -> str:
    return name_repeat_problem(outcome.problem) if outcome.problem else OK


def _of_record(find: Callable[[Record], object]) -> Callable[[Outcome], object]:
    """What a sound record tells."""
    return lambda outcome: None if outcome.record is None else find(outcome.record)


def _declare_latencies() -> Iterator[Column]:
    for place, name in enumerate(LATENCY_NAMES):
        meaning = (
            f"{describe_latency(name)} of a batch, over all batches of all ranks; of inference"
        )
        yield Column(f"latency_{name}_ms", NUMBER, "ms", meaning, partial(_find_ms, place))


def _find_ms(place: int, outcome: Outcome) -> Optional[float]:
    return 1000 * outcome.latency.values[place] if outcome.latency else None


def _declare_phases() -> Iterator[Column]:
    for name, meaning in {QUEUE: QUEUE_MEANING, **MEANINGS}.items():
        meaning = f"on rank 0, {meaning}"
        yield Column(f"phase_{name}_seconds", NUMBER, "s", meaning, partial(_find_phase, name))


def _find_phase(name: str, outcome: Outcome) -> Optional[float]:
    return find_start(outcome).seconds.get(name)


_REPEAT = Column("repeat", COUNT, "", "which of the independent repeats, from 1")

REPEATS: tuple[Column, ...] = (
    CASE_ID,
    _REPEAT,
    Column("attempt", COUNT, "", "which try of the repeat has the record, from 1",
        "record.case.attempt"),
    Column("status", TEXT, "", "ok, or why there is no figure: OOM, failed, invalid, missing",
        _name_status),
    Column("problem", TEXT, "", "the whole line of what is wrong; empty if nothing is"),
    Column("batch_size_per_device", COUNT, "samples", "that was measured, per device",
        "record.case.axes.batch_size"),
    Column("global_batch_size", COUNT, "samples", "of one step, over all ranks",
        "record.case.global_batch_size"),
    Column("samples_per_s", NUMBER, "samples/s", "global_batch_size x measured steps / "
        "`window_seconds`", "record.samples_per_s"),
    Column("window_seconds", NUMBER, "s", "between the fences around the measured steps, of the "
        "slowest rank", "record.window_seconds"),
    *_declare_latencies(),
    COMPUTED._replace(unit="samples/s", source=_of_record(find_computed_rate)),
    DATA_WAITING._replace(source=_of_record(find_waiting_share)),
    Column("epochs", COUNT, "epochs", "that were run; of training to accuracy",
        _of_record(lambda record: len(record.epochs) or None)),
    Column("top1", NUMBER, "share of 1", "on the validation samples after the last epoch",
        _of_record(lambda record: record.epochs[-1].top1 if record.epochs else None)),
    Column("train_seconds", NUMBER, "s", "from the first step to the end of the last epoch's "
        "validation",
        _of_record(lambda record: record.epochs[-1].elapsed_seconds if record.epochs else None)),
    Column("peak_memory_bytes", COUNT, "bytes", "the most that any rank took",
        _of_record(lambda record: find_peak_memory([record]))),
    Column("power_watts", NUMBER, "W", "of all devices together, mean over the window",
        _of_record(lambda record: find_power_watts(record) or None)),
    Column("stolen_share", NUMBER, "share of 1", "time that a hypervisor gave to others while CPUs "
        "had work, of the host that lost most",
        _of_record(lambda record: record.stolen_share if record.telemetry else None)),
    Column("own_cpu_share", NUMBER, "share of 1", "CPU time of all CPUs that the run took, on the "
        "host of `other_cpu_share`", lambda outcome: follow(find_worst(outcome), "own_share")),
    Column("other_cpu_share", NUMBER, "share of 1", "CPU time of all CPUs that processes which are "
        "not the run's took, of the host where it is most",
        lambda outcome: follow(find_worst(outcome), "other_share")),
    *_declare_phases(),
    Column("to_first_step_seconds", NUMBER, "s", "from the beginning of the job script with the "
        "array task to the end of the first step, on rank 0",
        lambda outcome: find_start(outcome).to_first_step_seconds),
    Column("clock", TEXT, "", "where step times come from: " + ", ".join(CLOCKS),
        "record.clock.name"),
    Column("hosts", TEXT, "", "in the order of ranks, separated by blanks",
        _of_record(lambda record: " ".join(dict.fromkeys(rank.host for rank in record.ranks)))),
    Column("started_at", TIME, "", "UTC, to the second", "record.started_at"),
    Column("ended_at", TIME, "", "UTC, to the second", "record.ended_at"),
)  # fmt: skip

RANKS: tuple[Column, ...] = (
    CASE_ID._replace(source="outcome.case_id"),
    _REPEAT._replace(source="outcome.repeat"),
    Column("rank", COUNT, "", "MPI rank, from 0", "result.rank"),
    Column("local_rank", COUNT, "", "rank on its host, from 0", "result.local_rank"),
    Column("host", TEXT, "", "where the rank ran", "result.host"),
    Column("device_name", TEXT, "", "what the rank drove", "result.device_name"),
    Column("window_seconds", NUMBER, "s", "between the fences around the measured steps",
        "result.window_seconds"),
    Column("data_wait_seconds", NUMBER, "s", "waited for data in the window",
        "result.data_wait_seconds"),
    Column("median_step_seconds", NUMBER, "s", "median of the measured steps; missing of logs"),
    Column("peak_memory_bytes", COUNT, "bytes", "that the rank took",
        lambda row: row.result.peak_memory_bytes or None),
    Column("final_loss", NUMBER, "", "loss after the last step", "result.final_loss"),
)  # fmt: skip

STEPS: tuple[Column, ...] = (
    CASE_ID._replace(kind=REPEATED_TEXT),
    _REPEAT._replace(kind=SHORT_COUNT),
    Column("rank", SHORT_COUNT, "", "MPI rank, from 0"),
    Column("step", SHORT_COUNT, "", "measured step, from 1"),
    Column("seconds", NUMBER, "s", "time of the step, by the record's clock"),
)


def make_repeat_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """A row for each planned repeat; `status` is "ok", or in a word why there are no figures."""
    values = (c.reduced.repeats if c.reduced else list_repeat_values(c) for c in cases)
    return make_frame_of_values(REPEATS, [*chain.from_iterable(values)])


def list_repeat_values(outcomes: CaseOutcomes) -> list[list[object]]:
    """The values in the columns of REPEATS, a list for each planned repeat."""
    return [list_values(REPEATS, outcome) for outcome in outcomes.outcomes]


def make_rank_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """A row for each rank of each sound repeat."""
    return make_frame(RANKS, (row for c in cases for o in c.outcomes for row in _list_ranks(o)))


def make_step_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """A row for each measured step of each rank: `case_id`, `repeat`, `rank`, `step`, `seconds`.

    Steps count from 1. The columns are made of whole arrays [ranks, steps], the case ids are a
    categorical: a large run has millions of rows.
    """
    import numpy
    from pandas import Categorical, DataFrame

    timed = [o for c in cases for o in c.outcomes if o.record and o.rank_step_seconds is not None]
    case_ids = list(dict.fromkeys(outcome.case_id for outcome in timed))
    numbers = {case_id: number for number, case_id in enumerate(case_ids)}
    times: list[Any] = [outcome.rank_step_seconds for outcome in timed]
    sizes = [seconds.size for seconds in times]
    ranks = [
        numpy.array([rank.rank for rank in o.record.ranks], "int32") for o in timed if o.record
    ]
    steps = [numpy.arange(1, seconds.shape[1] + 1, dtype="int32") for seconds in times]
    codes = numpy.repeat(numpy.array([numbers[o.case_id] for o in timed], "int32"), sizes)
    return DataFrame(
        {
            "case_id": Categorical.from_codes(codes, categories=case_ids),
            "repeat": numpy.repeat(numpy.array([o.repeat for o in timed], "int32"), sizes),
            "rank": _join([numpy.repeat(r, len(s)) for r, s in zip(ranks, steps)], "int32"),
            "step": _join([numpy.tile(s, len(r)) for r, s in zip(ranks, steps)], "int32"),
            "seconds": _join([seconds.ravel() for seconds in times], "float64"),
        }
    )


def _join(arrays: Sequence[Any], dtype: str) -> Any:
    """One array [all rows] of this type, also of none."""
    import numpy

    return numpy.concatenate([numpy.empty(0, dtype), *arrays], dtype=dtype)


def _list_ranks(outcome: Outcome) -> Iterator[_Rank]:
    if outcome.record is None:
        return
    import numpy

    seconds, results = outcome.rank_step_seconds, outcome.record.ranks
    medians = [None] * len(results) if seconds is None else numpy.median(seconds, axis=1).tolist()
    for result, median in zip(results, medians):
        yield _Rank(outcome, result, median)
