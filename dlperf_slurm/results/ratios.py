"""Cases and their samples -> baselines and the ratios to them, with intervals.

A curve is the speedups of one series of topologies over the same baseline; its intervals have joint
confidence.
"""

from collections.abc import Collection, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER, ON_DEVICE, TRAIN
from dlperf_slurm.matrix.axes import AXES
from dlperf_slurm.results.labels import list_keys
from dlperf_slurm.stats import signed_rank
from dlperf_slurm.stats.fligner_policello import compute_ratio_interval, count_needed_values
from dlperf_slurm.stats.median import CONFIDENCE, Interval, compute_median

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# the speedup of a reduced precision is relative to the first of these that was measured
REFERENCE_PRECISIONS = ("fp32", "tf32")

# axes that describe the data source
DATA_AXES = ("data", "data_workers", "prefetch_batches")

# columns that identify a case of the matrix
KEY = ("model", *AXES)


# a ratio of two samples' medians, and the ends of its 95 % interval: NaN for too few values
Ratio = tuple[float, float, float]


def compute_ratio(first: Sequence[float], second: Sequence[float], curve_points: int = 1) -> Ratio:
    """Divide the median of the second sample by that of the first: (ratio, low, high).

    No sample is empty. The ends of the interval are NaN for too few values; it has joint confidence
    with a curve's other points, `curve_points` in total.
    """
    interval = compute_ratio_interval(first, second, _share_confidence(curve_points))
    return _add_ends(compute_median(second) / compute_median(first), interval)


def take_paired_ratio(first: Sequence[float], second: Sequence[float]) -> Ratio:
    """Return the median ratio second / first of non-empty pairs: (ratio, low, high).

    The ends of the 95 % interval are NaN for too few pairs.
    """
    interval = signed_rank.compute_ratio_interval(first, second)
    return _add_ends(signed_rank.estimate_ratio(first, second), interval)


def _add_ends(value: float, interval: Optional[Interval]) -> Ratio:
    return (value, interval.low, interval.high) if interval else (value, nan, nan)


def count_needed_repeats(curve_points: int = 1) -> int:
    """Return how many repeats (or blocks) each of two cases needs for an interval of their ratio.

    The interval is one of `curve_points` with joint 95 % confidence; 1 for an interval by itself.
    """
    return count_needed_values(_share_confidence(curve_points))


def _share_confidence(curve_points: int) -> float:
    """Return the confidence of one interval, so that `curve_points` intervals jointly have 95 %."""
    return 1 - (1 - CONFIDENCE) / curve_points


def divide(value: Optional[float], base: Optional[float]) -> Optional[float]:
    """Return value / base, or None if either is None."""
    return None if value is None or base is None else value / base


def choose_reference(precisions: Collection[str]) -> str:
    """Return "fp32" or else "tf32", to which speedups are relative; '' if neither is there."""
    return next((name for name in REFERENCE_PRECISIONS if name in precisions), "")


def leave_out(*names: str) -> list[str]:
    """Return the names of the columns that identify a case (KEY), except `names`."""
    return [name for name in KEY if name not in names]


def find_baselines(cases: "DataFrame", candidates: "DataFrame", alike: Sequence[str]) -> "Series":
    """Return each case's baseline: the first measured candidate with equal values in `alike`.

    `alike` are columns. Returns the baseline's case id by case id; missing without a baseline.
    """
    from pandas import Series

    if candidates.empty:
        return Series(None, index=cases.index, dtype="string")
    keys = dict(zip(cases.index, list_keys(cases, alike)))
    first: dict[object, str] = {}
    for case_id in candidates.index[candidates.repeats_measured > 0]:
        first.setdefault(keys[case_id], case_id)
    found = [first.get(key) for key in keys.values()]
    return Series(found, index=cases.index, dtype="string")


def compute_ratios(
    values: Mapping[str, Sequence[float]],
    bases: "Series",
    is_time: bool = False,
    together: "Optional[Series]" = None,
) -> "DataFrame":
    """Divide the median of each case by that of its baseline: [value, low, high, is_baseline].

    `values` has the samples and `bases` the baseline by case id. For times the ratio is inverted
    (baseline / case). `together` is the number of intervals with joint confidence, 1 by default.
    `is_baseline`: the case is its own baseline.
    """
    from pandas import DataFrame

    rows: list[tuple[float, float, float, bool]] = []
    for case_id, base in zip(bases.index, bases.tolist()):
        own, other = values.get(case_id), values.get(base)
        if not own or not other:
            rows.append((nan, nan, nan, False))
            continue
        if base == case_id:
            rows.append((1.0, nan, nan, True))
            continue
        points = 1 if together is None else int(together[case_id])
        rows.append((*compute_ratio(*((own, other) if is_time else (other, own)), points), False))
    return DataFrame(rows, index=bases.index, columns=["value", "low", "high", "is_baseline"])


def find_smallest_topologies(cases: "DataFrame") -> "Series":
    """Find the id of the same training on the smallest measured topology, if any, by case id."""
    training = cases[cases["mode"] == TRAIN].sort_values(["world_size", "nodes"], kind="stable")
    alike = [*leave_out("topology", "batch_size_per_device"), "fixed_batch_size"]
    return find_baselines(cases, training, alike)


def count_curve_points(cases: "DataFrame", bases: "Series") -> "Series":
    """Return how many cases have the same baseline, as their intervals get joint confidence.

    `bases` has the baseline's case id by case id. Only measured cases count, and not the baselines,
    which have no interval. At least 1.
    """
    others = bases[(cases.repeats_measured > 0) & ~cases.index.isin(bases.dropna())]
    return bases.map(others.value_counts()).fillna(1).astype(int)


def number_precision_tables(cases: "DataFrame") -> "Series":
    """Return the number of the precision table that each case is in; missing for cases in none.

    Training: cases that differ only in topology, precision, compiler and batch size, with several
    precisions or compilers of which any case was planned. If a precision has several batch sizes,
    each size has its own table; otherwise one table has all, even if sizes differ by precision.
    Inference: cases that differ only in precision and batch size.
    """
    from pandas import Series

    precisions, compilers = cases.precision.to_dict(), cases.compiler.to_dict()
    sizes, reasons = cases.fixed_batch_size.to_dict(), cases.reason.to_dict()
    tables: list[list[str]] = []
    alike = leave_out("topology", "precision", "compiler", "batch_size_per_device")
    for group in _group(cases[cases["mode"] == TRAIN], alike):
        planned = [case for case in group if not reasons[case]]
        shown = ({precisions[case] for case in planned}, {compilers[case] for case in planned})
        kept = [
            case for case in group if precisions[case] in shown[0] and compilers[case] in shown[1]
        ]
        by_size: dict[str, list[str]] = {}
        of_precision: dict[str, set[str]] = {}
        for case in kept:
            by_size.setdefault(sizes[case], []).append(case)
            of_precision.setdefault(precisions[case], set()).add(sizes[case])
        has_several = any(len(own) > 1 for own in of_precision.values())
        for part in by_size.values() if has_several else [kept]:
            if len({(precisions[case], compilers[case]) for case in part}) > 1:
                tables.append(part)
    alike = leave_out("precision", "batch_size_per_device")
    tables += _group(cases[cases["mode"] == INFER], alike)
    numbers = {case: number for number, group in enumerate(tables) for case in group}
    return Series([numbers.get(case) for case in cases.index], index=cases.index, dtype="Int64")


def _group(cases: "DataFrame", alike: Sequence[str]) -> list[list[str]]:
    """Group case ids by their values in the columns `alike`, in order of appearance."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for case_id, key in zip(cases.index, list_keys(cases, alike)):
        groups.setdefault(key, []).append(case_id)
    return list(groups.values())


def find_reference_precisions(cases: "DataFrame") -> "Series":
    """Return the measured reference precision of each case's precision table; "" without one."""
    measured = cases[cases.repeats_measured > 0]
    references = measured.groupby("precision_table").precision.agg(
        lambda names: choose_reference(set(names))
    )
    return cases.precision_table.map(references).astype("string").fillna("")


def find_full_precisions(cases: "DataFrame") -> "Series":
    """Return the id of the same case in the reference precision, by case id.

    Missing for cases in no precision table, or without a measured one.
    """
    # in training, the precisions of a table may have different batch sizes
    size = cases.batch_size_per_device.where(cases["mode"] == INFER, "")
    sized = cases.assign(size=size)
    candidates = sized[sized.precision == sized.reference_precision]
    return find_baselines(sized, candidates, ["precision_table", "topology", "compiler", "size"])


def find_data_on_device(cases: "DataFrame") -> "Series":
    """Return the id of the same training case whose batches are on the device, by case id.

    That case loads no data; missing if there is none.
    """
    candidates = cases[(cases["mode"] == TRAIN) & (cases.data == ON_DEVICE)]
    return find_baselines(cases, candidates, leave_out(*DATA_AXES))


def find_full_trainings(cases: "DataFrame") -> "Series":
    """Find the id of the training to accuracy in the reference precision, if any, by case id.

    At the same batch size, or else at any batch size if there is only one such training.
    """
    trained = cases[(cases.planned_epochs > 0) & (cases.repeats_measured > 0)]
    if trained.empty:
        return find_baselines(cases, trained, KEY)
    references = trained.groupby("model").precision.agg(lambda p: choose_reference(set(p)))
    candidates = trained[trained.precision == trained.model.map(references)]
    of_any_size = leave_out("precision", "batch_size_per_device")
    unique = candidates[~candidates.duplicated(of_any_size, keep=False)]
    same = find_baselines(cases, candidates, leave_out("precision"))
    return same.fillna(find_baselines(cases, unique, of_any_size))
