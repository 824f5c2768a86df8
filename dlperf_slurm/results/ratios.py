"""A case and its baseline -> their ratio: the one place that divides figures, and picks by what."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.contract.axes import INFER, ON_DEVICE, TRAIN
from dlperf_slurm.stats.median import CONFIDENCE, LATENCY_PERCENTILES, Interval, compute_median
from dlperf_slurm.stats.placements import compute_ratio_interval, count_needed_values

if TYPE_CHECKING:
    from pandas import DataFrame

# what the speedup of a reduced precision is relative to: the first of these that was measured
REFERENCE_PRECISIONS = ("fp32", "tf32")

# axes that together say where a batch comes from
DATA_AXES = ("data", "data_workers", "prefetch_batches")


@dataclass(frozen=True)
class Ratio:
    """A median over another one; its value is None where one of the two was not measured.

    The interval is None where the repeats are too few for it, and where a case is its own baseline.
    It holds together with those of `curve_points` ratios in all, one of them its own.
    """

    value: Optional[float] = None
    interval: Optional[Interval] = None
    is_of_itself: bool = False
    curve_points: int = 1

    @property
    def needed_values(self) -> int:
        """How many repeats, or blocks, of either case the interval takes."""
        return count_needed_values(_share_confidence(self.curve_points))

    def scale(self, factor: float) -> "Ratio":
        """The ratio times a positive factor."""
        if self.value is None:
            return self
        interval = self.interval and self.interval.scale(factor)
        return replace(self, value=self.value * factor, interval=interval)


NO_RATIO = Ratio()


def take_ratio(first: Sequence[float], second: Sequence[float], curve_points: int = 1) -> Ratio:
    """The second sample's median over the first's, with an interval: one of so many together."""
    if not first or not second:
        return NO_RATIO
    value = compute_median(second) / compute_median(first)
    interval = compute_ratio_interval(first, second, _share_confidence(curve_points))
    return Ratio(value, interval, curve_points=curve_points)


def _share_confidence(curve_points: int) -> float:
    """The confidence of each of so many intervals that all hold with CONFIDENCE (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / curve_points


def divide(value: Optional[float], base: Optional[float]) -> Optional[float]:
    """The ratio of two figures without repeats; None where one is missing."""
    return None if value is None or base is None else value / base


def choose_reference(precisions: Collection[str]) -> str:
    """The full precision among these; empty when there is none."""
    return next((name for name in REFERENCE_PRECISIONS if name in precisions), "")


def find_reference(cases: "DataFrame") -> str:
    """The full precision in which any of these cases was measured; empty when there is none."""
    return choose_reference(set(_keep_measured(cases).precision))


def choose_baselines(
    frame: "DataFrame", candidates: "DataFrame", alike: Sequence[str]
) -> list[Optional[int]]:
    """Each row's baseline: the first measured candidate that is alike in these columns, or None.

    Rows are named by their number in the frame, as everywhere here.
    """
    measured = _keep_measured(candidates)
    first: dict[tuple[object, ...], int] = {}
    for row, values in zip(measured.index, _list_rows(measured, alike)):
        first.setdefault(values, int(row))
    return [first.get(values) for values in _list_rows(frame, alike)]


def _list_rows(frame: "DataFrame", columns: Sequence[str]) -> "zip[tuple[object, ...]]":
    return zip(*(frame[column] for column in columns))


def add_ratios(frame: "DataFrame", axes: Sequence[str]) -> None:
    """Fill in the ratios of a frame of cases, in place; `axes` are those of its columns."""
    key = ("model", *axes)
    _add_scaling(frame, key)
    _add_precision_speedups(frame, key)
    _add_data_ratios(frame, key)
    _add_train_speedups(frame, key)


def _add_scaling(frame: "DataFrame", key: Sequence[str]) -> None:
    """Speedup and weak-scaling efficiency of training over the smallest topology measured."""
    training = frame[frame["mode"] == TRAIN]
    devices = frame.nodes * frame.devices_per_node
    sized = training.assign(devices=devices[training.index])
    by_devices = sized.sort_values(["devices", "nodes"], kind="stable")
    bases = choose_baselines(frame, by_devices, _leave_out(key, "topology"))
    others = _keep_measured(frame).index.difference([i for i in bases if i is not None])
    curves = Counter(bases[row] for row in others)
    sizes = [curves[base] for base in bases]
    speedups = _compare(frame.units, bases, curve_points=sizes)
    fill(frame, "baseline", ("" if i is None else frame.topology[i] for i in bases))
    fill(frame, "speedup", speedups)
    efficiencies = (
        speedup if base is None else speedup.scale(devices[base] / own)
        for speedup, base, own in zip(speedups, bases, devices)
    )
    fill(frame, "weak_scaling_efficiency", efficiencies)
    fill(frame, "scaling_notes", map(_name_other_sizes, frame.index, bases, repeat(frame)))


def _name_other_sizes(row: int, base: Optional[int], frame: "DataFrame") -> tuple[str, ...]:
    """A note where a speedup is over another batch size per device, as a search may find one."""
    own, other = (() if i is None else frame.batch_sizes[i] for i in (row, base))
    if not own or not other or own == other:
        return ()
    sizes = [" and ".join(map(str, found)) for found in (own, other)]
    return (
        f"speedup and efficiency compare a batch size of {sizes[0]} per device with one of "
        f"{sizes[1]}: another batch size is another efficiency of each device",
    )


def _add_precision_speedups(frame: "DataFrame", key: Sequence[str]) -> None:
    """Throughput, and latency, over the reference precision of the case's table."""
    fill(frame, "precision_table", _number_precision_tables(frame, key))
    tables = frame.groupby("precision_table", sort=False)
    references = {number: find_reference(cases) for number, cases in tables}
    fill(frame, "reference_precision", (references.get(i, "") for i in frame.precision_table))
    # in training, precisions that stand side by side may each have a batch size of its own
    sized = frame.assign(size=frame.batch_size_text.where(frame["mode"] == INFER, ""))
    candidates = sized[sized.precision == sized.reference_precision]
    alike = ["precision_table", "topology", "compiler", "size"]
    bases = choose_baselines(sized, candidates, alike)
    fill(frame, "precision_speedup", _compare(frame.units, bases))
    columns = [
        _compare([latency.units[i] if latency else () for latency in frame.latency], bases, True)
        for i in range(1 + len(LATENCY_PERCENTILES))
    ]
    fill(frame, "latency_speedups", zip(*columns))


def _number_precision_tables(frame: "DataFrame", key: Sequence[str]) -> list[Optional[int]]:
    """Which cases show side by side what precisions bring, as numbers of tables; None in none.

    Training: cases of one model and framework (with its variant) that have several precisions or
    compilers, without those of which nothing was to be run. Where precisions share a batch size it
    has a table of its own; a precision with another one (as NVIDIA's 96 in fp32 beside 192 in mixed
    precision) stands beside them when each has just one. Inference: those of one topology and
    compiler.
    """
    tables: list[DataFrame] = []
    alike = _leave_out(key, "topology", "precision", "compiler", "batch_size_per_device")
    for _, cases in frame[frame["mode"] == TRAIN].groupby(alike, sort=False):
        planned = cases[cases.reason == ""]
        is_planned = [cases[axis].isin(planned[axis]) for axis in ("precision", "compiler")]
        kept = cases[is_planned[0] & is_planned[1]]
        sizes = kept.groupby("precision").batch_size_text.nunique()
        parts = [part for _, part in kept.groupby("batch_size_text", sort=False)]
        for part in parts if (sizes > 1).any() else [kept]:
            if part.precision.nunique() > 1 or part.compiler.nunique() > 1:
                tables.append(part)
    alike = _leave_out(key, "precision", "batch_size_per_device")
    tables += [cases for _, cases in frame[frame["mode"] == INFER].groupby(alike, sort=False)]
    numbers = {row: number for number, cases in enumerate(tables) for row in cases.index}
    return [numbers.get(row) for row in frame.index]


def _add_data_ratios(frame: "DataFrame", key: Sequence[str]) -> None:
    """Throughput of training over that of the same case with its batch on the device."""
    on_device = frame[(frame["mode"] == TRAIN) & (frame.data == ON_DEVICE)]
    bases = choose_baselines(frame, on_device, _leave_out(key, *DATA_AXES))
    fill(frame, "relative_to_device_data", _compare(frame.units, bases))


def _add_train_speedups(frame: "DataFrame", key: Sequence[str]) -> None:
    """Time to train in the reference precision, at the same batch size, else at the only one.

    NVIDIA's speedups are of 192 images over 96 in fp32.
    """
    trained = _keep_measured(frame[frame.epochs > 0])
    references = {model: find_reference(cases) for model, cases in trained.groupby("model")}
    candidates = trained[trained.precision == trained.model.map(references)]
    of_any_size = _leave_out(key, "precision", "batch_size_per_device")
    unique = candidates[~candidates.duplicated(of_any_size, keep=False)]
    same = choose_baselines(frame, candidates, _leave_out(key, "precision"))
    only = choose_baselines(frame, unique, of_any_size)
    bases = [other if base is None else base for base, other in zip(same, only)]
    fill(frame, "train_speedup", _compare(frame.all_train_seconds, bases, True))


def _compare(
    samples: Sequence[Sequence[float]],
    bases: Sequence[Optional[int]],
    is_time: bool = False,
    curve_points: Optional[Sequence[int]] = None,
) -> list[Ratio]:
    """The ratio of each row to its baseline; of times, how many times longer the latter took.

    Intervals hold by themselves, or with those of so many points of a row's curve.
    """
    ratios = []
    sizes = curve_points or [1] * len(bases)
    for own, row, base, size in zip(samples, range(len(bases)), bases, sizes):
        if base is None or not own:
            ratios.append(NO_RATIO)
        elif base == row:
            ratios.append(Ratio(1.0, None, is_of_itself=True))
        else:
            other = samples[base]
            pair = (own, other) if is_time else (other, own)
            ratios.append(take_ratio(*pair, size))
    return ratios


def fill(frame: "DataFrame", name: str, values: Iterable[object]) -> None:
    """Set a column to these values as they are: None stays None, and a count no float."""
    from pandas import Series

    frame[name] = Series([*values], index=frame.index, dtype=object)


def _keep_measured(cases: "DataFrame") -> "DataFrame":
    return cases[cases.samples.map(bool).astype(bool)]


def _leave_out(key: Sequence[str], *names: str) -> list[str]:
    return [axis for axis in key if axis not in names]
