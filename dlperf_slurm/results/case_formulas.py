"""Formulas of the columns of cases: from the plan, the repeats of a case, or its samples.

Most functions here return a `Compute`, which a column of `results.case_columns` declares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import stdev
from typing import TYPE_CHECKING, Any

from dlperf_slurm.contract.record import OK
from dlperf_slurm.results import ratios
from dlperf_slurm.results.case_summary import RunFrames
from dlperf_slurm.results.columns import NUMBER, TEXT, with_bounds
from dlperf_slurm.results.labels import number_groups
from dlperf_slurm.results.repeats import LATENCIES
from dlperf_slurm.results.samples import make_samples, summarize_samples
from dlperf_slurm.stats.median import LATENCY_NAMES

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# quantities that are summarized as a median over samples
SAMPLED = (
    "samples_per_s", "computed_samples_per_s", "train_seconds",
    *(f"{name}_{part}_seconds" for name in LATENCIES for part in LATENCY_NAMES),
)  # fmt: skip


class Cases(dict[str, Any]):
    """The columns of the frame of cases that are computed so far, by name, and what they are from.

    The first are those of `plan`, the frame of the planned cases. `samples` has the independent
    values of each quantity by case id, `medians` their medians, intervals and ranges (see
    `results.samples`); `valid` has the repeats with a valid record, and `aggregates` their columns
    by the aggregation that cases need ("max", "median", ...). Data frames are indexed by case id.
    """

    def __init__(
        self,
        plan: "DataFrame",
        frames: RunFrames,
        valid: "DataFrame",
        aggregates: "Mapping[str, DataFrame]",
    ) -> None:
        super().__init__(plan.items())
        self.plan = plan
        self.frames = frames
        self.valid = valid
        self.aggregates = aggregates
        self.samples = make_samples(frames.repeats, frames.pooled, plan.blocks, SAMPLED)
        self.medians = {
            name: summarize_samples(own, plan.index) for name, own in self.samples.items()
        }

    def make_frame(self, *names: str) -> "DataFrame":
        """Return the plan with the columns `names` added."""
        return self.plan.assign(**{name: self[name] for name in names})


Compute = Callable[[Cases], Any]

# an aggregation: the value of the first valid repeat
FIRST = "first"


@dataclass(frozen=True)
class RepeatAggregate:
    """A formula that aggregates a column of `repeats` over the valid repeats of each case.

    `how` is FIRST, "max", "median" or another name of a pandas aggregation.
    """

    column: str
    how: str

    def __call__(self, cases: Cases) -> "Series":
        return cases.aggregates[self.how][self.column]


def median_of(quantity: str, factor: float = 1.0) -> Compute:
    """Return a formula for median, interval and range of a quantity's samples, times `factor`.

    The formula returns a data frame [cases, (value, low, high, min, max)].
    """
    return lambda cases: factor * cases.medians[quantity]


def tflops_of(peak: str = "") -> Compute:
    """Return a formula like that of `median_of`: TFLOP/s of a device, divided by column `peak`."""

    def compute(cases: Cases) -> "DataFrame":
        factor = cases["tflop_per_sample"] / (cases[peak] if peak else 1.0)
        return median_of("samples_per_s")(cases).mul(factor, axis=0)

    return compute


def ratio_to(quantity: str, bases: str, is_time: bool = False, together: str = "") -> Compute:
    """Return a formula that divides the median of each case by that of its baseline.

    `bases` is the name of the column with the baselines' case ids, `together` that of the column
    with the number of intervals of joint confidence ("": each interval by itself). For times
    (`is_time`) the ratio is inverted. See `ratios.compute_ratios`.
    """

    def compute(cases: Cases) -> "DataFrame":
        points = cases[together] if together else None
        return ratios.compute_ratios(cases.samples[quantity], cases[bases], is_time, points)

    return compute


def baseline(find: "Callable[[DataFrame], Series]", *names: str) -> Compute:
    """Return a formula that finds each case's baseline with `find`.

    `find` gets the plan with the columns `repeats_measured` and `names` added, and mostly returns
    case ids; it may compute any other column from the plan.
    """
    return lambda cases: find(cases.make_frame("repeats_measured", *names))


def divide_by_devices(is_strong: bool) -> Compute:
    """Return a formula for scaling efficiency: speedup / (devices / baseline's devices).

    It is missing for cases of the other kind of scaling than `is_strong` says. Strong scaling has a
    fixed global batch size. The formula returns columns [value, low, high, is_baseline];
    `is_baseline` flags a case that is its own baseline.
    """

    def compute(cases: Cases) -> "DataFrame":
        from pandas import DataFrame

        bases = cases["baseline_case"].astype(object).map(cases["world_size"])
        devices = bases.astype(NUMBER) / cases["world_size"]
        is_own_kind = (cases["global_batch_size"].astype(NUMBER) > 0) == is_strong
        factor = devices.astype(NUMBER).where(is_own_kind)
        parts = {part: cases[part] * factor for part in ("speedup", *with_bounds("speedup"))}
        return DataFrame({**parts, "is_baseline": cases["speedup_is_baseline"]})

    return compute


def compute_deviation(cases: Cases) -> "Series":
    """Return sample standard deviations (n - 1) of top-1 accuracy over seeds; missing below two."""
    known = cases.valid[cases.valid.top1.notna()]
    found = {case_id: stdev(own) for case_id, own in known.groupby("case_id").top1 if len(own) > 1}
    return cases.plan.index.to_series().map(found).astype(NUMBER)


def find_sizes(cases: Cases) -> "Series":
    """Return the measured batch sizes of each case as text, ascending: "16 32"; "" without any."""
    sizes = cases.frames.repeats[["case_id", "batch_size_per_device"]].dropna().drop_duplicates()
    texts = sizes.sort_values("batch_size_per_device").astype("string").groupby("case_id")
    joined = texts.batch_size_per_device.agg(" ".join)
    return joined.reindex(cases.plan.index).astype(TEXT).fillna("")


def find_problem(cases: Cases) -> "Series":
    """Return the worst status of each case's repeats, such as "OOM", or "" with a valid record.

    It is "missing" without any record, and "not run" for a case that the matrix leaves out.
    """
    from pandas import Categorical, Series

    status = cases.frames.repeats.status
    words = Categorical(status.mask(status == OK), ["OOM", "failed", "invalid", "missing"], True)
    worst = Series(words, index=cases.frames.repeats.case_id).groupby(level=0).min()
    problem = worst.reindex(cases.plan.index).astype("string").fillna("missing")
    problem = problem.mask(cases.plan.reason != "", "not run")
    return problem.mask(cases["repeats_measured"] > 0, "")


def at_busiest(column: str) -> Compute:
    """Return a formula that copies a column of `repeats` from one repeat of each case.

    It is the repeat in which other processes of the machine used most CPU time.
    """

    def compute(cases: Cases) -> "Series":
        known = cases.frames.repeats.dropna(subset="other_cpu_share")
        busiest = known.loc[known.groupby("case_id").other_cpu_share.idxmax()]
        return busiest.set_index("case_id")[column].reindex(cases.plan.index)

    return compute


def of_slowest_device(column: str) -> Compute:
    """Return a formula that copies a column of `devices`, as text, for a case's slowest device."""
    return lambda cases: (
        cases.frames.devices.groupby("case_id")[column].first().reindex(cases.plan.index)
    ).astype("string")


def median_of_all_reduces(column: str) -> Compute:
    """Return a formula: median of a column of `sums` over a case's all-reduces of gradient size."""

    def compute(cases: Cases) -> "Series":
        own = cases.frames.sums[cases.frames.sums.of_gradients]
        return own.groupby("case_id")[column].median().reindex(cases.plan.index)

    return compute


def compute_reachable_efficiency(hidden_share: float) -> Compute:
    """Return a formula for the weak-scaling efficiency that the gradients' all-reduce allows.

    The all-reduce overlaps with `hidden_share` of the step time of a single device; the rest of the
    all-reduce prolongs the step. Missing where no single device was measured as the baseline.
    """
    from pandas import Series

    def compute(cases: Cases) -> "Series":
        frame = cases.make_frame("baseline", "repeats_measured", "samples_per_s")
        group = Series(number_groups(frame, ratios.leave_out("topology")), index=frame.index)
        is_base = (frame.topology == frame.baseline) & (frame.world_size == 1)
        step = cases["samples_per_step"].astype(NUMBER) / frame.samples_per_s
        step = group.map(step[is_base].groupby(group[is_base]).first())
        seconds = cases["all_reduce_seconds"]
        summed = group.isin(group[seconds.notna()])
        seconds = seconds.mask(is_base & summed, 0.0)
        exposed = (seconds - hidden_share * step).clip(lower=0.0)
        return step / (step + exposed)

    return compute
