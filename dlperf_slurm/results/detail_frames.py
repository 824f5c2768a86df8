"""Outcomes -> frames below that of the cases: a row per repeat, per rank, per step."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.record import OK, Record
from dlperf_slurm.results.cases import name_repeat_problem
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import make_typed_frame
from dlperf_slurm.results.declared_columns import LATENCIES, RANKS, REPEATS, list_kinds
from dlperf_slurm.results.frame import find_waiting_share, is_wait_known
from dlperf_slurm.results.usage import find_power_watts
from dlperf_slurm.stats.median import compute_latency

if TYPE_CHECKING:
    from pandas import DataFrame

REPEAT_COLUMNS = list_kinds(REPEATS)
RANK_COLUMNS = list_kinds(RANKS)


def make_repeat_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """A row for each planned repeat; `status` is "ok", or in a word why there are no figures."""
    rows = [_describe_repeat(outcome) for c in cases for outcome in c.outcomes]
    return make_typed_frame(rows, REPEAT_COLUMNS)


def make_rank_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """A row for each rank of each sound repeat."""
    rows = [row for c in cases for outcome in c.outcomes for row in _list_ranks(outcome)]
    return make_typed_frame(rows, RANK_COLUMNS)


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


def _describe_repeat(outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {
        "case_id": outcome.case_id,
        "repeat": outcome.repeat,
        "status": name_repeat_problem(outcome.problem) if outcome.problem else OK,
        "problem": outcome.problem,
    }
    if outcome.record is not None:
        row.update(_describe_record(outcome.record))
    if outcome.batch_seconds:
        values = compute_latency(outcome.batch_seconds).values
        row.update({f"latency_{name}_ms": 1000 * s for name, s in zip(LATENCIES, values)})
    return row


def _describe_record(record: Record) -> dict[str, Any]:
    last = record.epochs[-1] if record.epochs else None
    tells_waiting = record.case.log_format is None and is_wait_known(record)
    return {
        "attempt": record.case.attempt,
        "batch_size_per_device": record.case.axes.batch_size,
        "global_batch_size": record.case.global_batch_size,
        "samples_per_s": record.samples_per_s,
        "window_seconds": record.window_seconds,
        "computed_samples_per_s": record.computed_samples_per_s if tells_waiting else None,
        "data_waiting_share": find_waiting_share(record) if tells_waiting else None,
        "epochs": len(record.epochs) or None,
        "top1": last and last.top1,
        "train_seconds": last and last.elapsed_seconds,
        "peak_memory_bytes": max(rank.peak_memory_bytes for rank in record.ranks) or None,
        "power_watts": find_power_watts(record) or None,
        "stolen_share": record.stolen_share if record.telemetry else None,
        "clock": record.clock.name,
        "hosts": " ".join(dict.fromkeys(rank.host for rank in record.ranks)),
        "started_at": record.started_at,
        "ended_at": record.ended_at,
    }


def _list_ranks(outcome: Outcome) -> Iterator[dict[str, Any]]:
    if outcome.record is None:
        return
    import numpy

    seconds = outcome.rank_step_seconds
    medians = [None] * len(outcome.record.ranks)
    if seconds is not None:
        medians = numpy.median(seconds, axis=1).tolist()
    for rank, median in zip(outcome.record.ranks, medians):
        yield {
            **vars(rank),
            "case_id": outcome.case_id,
            "repeat": outcome.repeat,
            # 0 is unknown
            "peak_memory_bytes": rank.peak_memory_bytes or None,
            "median_step_seconds": median,
        }
