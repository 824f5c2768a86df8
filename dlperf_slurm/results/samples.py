"""The data frame `repeats` -> the independent samples of each quantity, and their medians.

If repeats are spread over blocks (array jobs at different times), the blocks are independent: a
sample is the median of a block. Without blocks each repeat is a block of its own.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from dlperf_slurm.jobs.manifest import compute_block
from dlperf_slurm.results.columns import COUNT
from dlperf_slurm.results.notes import split_percentiles
from dlperf_slurm.stats.median import compute_median_interval

if TYPE_CHECKING:
    from pandas import DataFrame, Index, Series

# the index of samples; a quantity is a column of `repeats`
INDEX = ["case_id", "quantity", "block"]
OF_QUANTITY = ["case_id", "quantity"]


def make_samples(
    repeats: "DataFrame", pooled: "DataFrame", block_counts: "Series", quantities: Sequence[str]
) -> "Series":
    """Return the independent samples as a series, indexed by case, quantity and block.

    `quantities` are columns of `repeats`; the sample of a block is the median over its repeats.
    `block_counts` has the number of blocks of each case, 1 if repeats are not spread over any. A
    training has a time only if every seed reached its target: over those that did, it would seem
    faster than it is. A latency percentile that needs the batches of all repeats together
    (`pooled`) has one sample, or none if there are still too few batches.
    """
    from pandas import MultiIndex, Series, concat

    measured = repeats[repeats.samples_per_s.notna()]
    counts = measured.case_id.map(block_counts).astype(COUNT)
    number: Any = compute_block(measured.repeat, counts)
    block = number.where(counts > 1, measured.repeat).rename("block")
    groups = measured.groupby([measured.case_id, block])
    blocks = groups[list(quantities)].median()
    failed = measured.case_id[measured.top1 < measured.target_top1].unique()
    if len(failed):
        blocks.loc[failed, "train_seconds"] = float("nan")
    samples = blocks.rename_axis(columns="quantity").stack().dropna().reorder_levels(INDEX)
    replaced, together = [], {}
    for row in pooled.itertuples():
        pooled_percents, missing = split_percentiles(row.fewest, row.together)
        for percent in (*pooled_percents, *missing):
            key = (row.case_id, f"{row.phase}_p{percent}_seconds")
            replaced.append(key)
            if percent in pooled_percents:
                together[(*key, 0)] = getattr(row, f"p{percent}_seconds")
    if not replaced:
        return samples
    is_replaced = samples.index.droplevel("block").isin(replaced)
    kept = samples[~is_replaced]
    if not together:
        return kept
    index = MultiIndex.from_tuples([*together], names=INDEX)
    return concat([kept, Series([*together.values()], index=index, dtype=float)])


def summarize_samples(
    samples: "Series", cases: "Index", quantities: Sequence[str]
) -> "dict[str, DataFrame]":
    """Return median, 95 % interval, range and count of each quantity's samples: [cases, 6].

    The frames are by quantity, with a row for each case id of `cases`, and NaN without samples and
    where an interval or range needs more of them. In long form a single `groupby` computes all
    quantities. The ends of an interval are order statistics, whose rank depends only on the count,
    so they are looked up in the sorted values.
    """
    ordered = samples.sort_values()
    groups = ordered.groupby(level=OF_QUANTITY)
    found = groups.agg(["median", "min", "max", "count"])
    rank = found["count"].map(compute_interval_rank)
    position = groups.cumcount().to_numpy()
    place = found.index.get_indexer(ordered.index.droplevel("block"))
    wanted, last = rank.to_numpy()[place], found["count"].to_numpy()[place] - 1
    for name, at in (("low", wanted), ("high", last - wanted)):
        found[name] = ordered[position == at].droplevel("block")
    # a single value has no range
    found[["min", "max"]] = found[["min", "max"]].where(found["count"] > 1, axis=0)
    parts = dict(iter(found.groupby(level="quantity")))
    nothing = found.iloc[:0]
    return {
        name: parts.get(name, nothing).droplevel("quantity").reindex(cases) for name in quantities
    }


@cache
def compute_interval_rank(count: int) -> float:
    """Return the index in `count` sorted values of the lower end of their median's 95 % interval.

    From 0; NaN if there are too few values for an interval.
    """
    interval = compute_median_interval(range(count))
    return float("nan") if interval is None else interval.low
