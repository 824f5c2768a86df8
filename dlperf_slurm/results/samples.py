"""The data frame `repeats` -> the independent samples of each quantity, and their medians.

If repeats are spread over blocks (array jobs at different times), the blocks are independent: a
sample is the median of a block. Without blocks each repeat is a block of its own.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import nan
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.jobs.manifest import compute_block
from dlperf_slurm.results.columns import COUNT
from dlperf_slurm.results.notes import split_percentiles
from dlperf_slurm.stats.median import Interval, compute_median, compute_median_interval

if TYPE_CHECKING:
    from pandas import DataFrame, Index, Series

# the samples by quantity and case id; a quantity is a column of `repeats`
Samples = dict[str, dict[str, list[float]]]
SUMMARY = ["median", "low", "high", "min", "max"]


def make_samples(
    repeats: "DataFrame", pooled: "DataFrame", block_counts: "Series", quantities: Sequence[str]
) -> Samples:
    """Return the independent samples of each quantity and case; cases without any are left out.

    `quantities` are columns of `repeats`; the sample of a block is the median over its repeats.
    `block_counts` has the number of blocks of each case, 1 if repeats are not spread over any. A
    training has a time only if every seed reached its target: over those that did, it would seem
    faster than it is. A latency percentile that needs the batches of all repeats together
    (`pooled`) has one sample, or none if there are still too few batches.
    """
    measured = repeats[repeats.samples_per_s.notna()]
    counts = measured.case_id.map(block_counts).astype(COUNT)
    number: Any = compute_block(measured.repeat, counts)
    block = number.where(counts > 1, measured.repeat)
    blocks = measured.groupby([measured.case_id, block])[list(quantities)].median()
    failed = measured.case_id[measured.top1 < measured.target_top1].unique()
    if len(failed):
        blocks.loc[failed, "train_seconds"] = nan
    samples: Samples = {}
    for name in quantities:
        own = samples[name] = {}
        for (case_id, _), value in blocks[name].dropna().items():
            own.setdefault(case_id, []).append(value)
    for row in pooled.itertuples():
        together, missing = split_percentiles(row.fewest, row.together)
        for percent in (*together, *missing):
            name = f"p{percent}_seconds"
            own = samples[f"{row.phase}_{name}"]
            own.pop(row.case_id, None)
            if percent in together:
                own[row.case_id] = [getattr(row, name)]
    return samples


def summarize_samples(samples: Mapping[str, Sequence[float]], cases: "Index") -> "DataFrame":
    """Return the SUMMARY of a quantity's samples by case id: median, 95 % interval, range.

    Returns a row for each case id of `cases`, with NaN for a case without samples, and where an
    interval or range needs more of them.
    """
    from pandas import DataFrame

    rows = map(_summarize, samples.values())
    return DataFrame([*rows], index=[*samples], columns=SUMMARY, dtype=float).reindex(cases)


def _summarize(values: Sequence[float]) -> tuple[float, ...]:
    ordered, low, high = sorted(values), nan, nan
    if places := _find_interval_places(len(values)):
        low, high = ordered[int(places.low)], ordered[int(places.high)]
    # a single value has no range
    ends = (ordered[0], ordered[-1]) if len(values) > 1 else (nan, nan)
    return compute_median(ordered), low, high, *ends


# cached, as it takes milliseconds for a thousand samples, and depends on their number alone
@cache
def _find_interval_places(count: int) -> Optional[Interval]:
    """Return the places, in ascending samples, of the ends of their median's 95 % interval."""
    return compute_median_interval(range(count))
