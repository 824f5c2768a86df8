"""The outcomes of a case's repeats -> bytes for the index, and back: what has not changed is kept.

Their step times are in the case's Parquet file already, in the same order. What stands beside the
steps, as the times of tokens do, is read again with its record.
"""

from dataclasses import dataclass
from typing import Any, Optional

from dlperf_slurm.reports.case_index import decode, encode
from dlperf_slurm.results.collect import CaseOutcomes, Outcome


@dataclass(frozen=True)
class _Kept:
    """An outcome without its times, which have this shape [ranks, steps] in the Parquet file.

    `text` is what it was read from (`case_index.print_repeats`). An outcome that is None is only
    there for the times that the file has of it.
    """

    text: str
    shape: tuple[int, ...]
    outcome: Optional[Outcome]


def encode_repeats(texts: dict[int, str], outcomes: CaseOutcomes) -> bytes:
    """The repeats of a case whose steps have been written; `texts` are by repeat."""
    kept = []
    for one in outcomes.outcomes:
        seconds = one.rank_step_seconds
        bare = one.without_times() if one.beside.token_seconds is None else None
        kept.append(_Kept(texts[one.repeat], () if seconds is None else seconds.shape, bare))
    return encode(kept)


def decode_repeats(content: bytes, seconds: Any) -> dict[str, Outcome]:
    """What `encode_repeats` was given, by text; `seconds` [all steps] are those of the file."""
    found, begin = {}, 0
    for kept in decode(content):
        end = begin + (kept.shape[0] * kept.shape[1] if kept.shape else 0)
        if kept.outcome is not None:
            times = seconds[begin:end].reshape(kept.shape) if kept.shape else None
            found[kept.text] = kept.outcome.with_times(times)
        begin = end
    assert begin == len(seconds), f"the file has {len(seconds)} steps, its records {begin}"
    return found
