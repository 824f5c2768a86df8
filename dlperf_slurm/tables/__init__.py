"""What all tables share: their footnotes, the names of their columns, and words for what failed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from dlperf_slurm.collect import CaseOutcomes
from dlperf_slurm.contract import WORKER
from dlperf_slurm.statistics import count_needed_samples, find_median
from dlperf_slurm.tables.stability import describe_stability
from dlperf_slurm.worker.models import list_models, load_model

# axes that tell columns of a table apart, with the value that goes without saying
VARIANT_AXES = {
    "source": WORKER,
    "compiler": "none",
    "memory_format": "default",
    "distribution": "native",
    "clip_global_norm": False,
}

# what the speedup of a reduced precision is relative to: the first of these that was measured
REFERENCE_PRECISIONS = ("fp32", "tf32")

# a publisher's own rule that differs by more is named
PUBLISHER_TOLERANCE = 0.02


@dataclass
class Footnotes:
    """Texts in the order in which tables first refer to them; the first is number 1."""

    texts: list[str] = field(default_factory=list)

    def number(self, text: str) -> int:
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1


def find_varying_axes(cases: Sequence[CaseOutcomes]) -> list[str]:
    """Those of the variant axes on which the cases differ."""
    return [axis for axis in VARIANT_AXES if len({getattr(c.case, axis) for c in cases}) > 1]


def make_label(outcomes: CaseOutcomes, axes: Collection[str]) -> str:
    """The framework, with what is not default on these axes."""
    return " ".join([outcomes.case.framework, *describe_variants(outcomes, axes)])


def describe_variants(outcomes: CaseOutcomes, axes: Collection[str]) -> list[str]:
    texts = []
    for axis, default in VARIANT_AXES.items():
        value = getattr(outcomes.case, axis)
        if axis in axes and value != default:
            texts.append("clip" if axis == "clip_global_norm" else str(value))
    return texts


def choose_reference(precisions: Collection[str]) -> str:
    """The full precision among these; empty when there is none."""
    return next((name for name in REFERENCE_PRECISIONS if name in precisions), "")


def number_footnotes(outcomes: CaseOutcomes, footnotes: Footnotes) -> tuple[int, ...]:
    """The case's notes, why it was not run, and what else a reader of its cell has to know."""
    case = outcomes.case
    texts = [*case.notes]
    if case.reason:
        texts.append(case.reason)
    else:
        texts += _describe_problems(outcomes)
        texts += _describe_batch_trials(outcomes)
        texts += _describe_publisher(outcomes)
        texts += describe_stability(outcomes)
        if 0 < len(outcomes.records) < count_needed_samples():
            texts.append(
                f"a 95 % interval takes {count_needed_samples()} repeats; in braces the smallest "
                "and the largest value"
            )
    return tuple(dict.fromkeys(footnotes.number(text) for text in texts))


def _describe_problems(outcomes: CaseOutcomes) -> list[str]:
    """One text per distinct problem of a case, with the repeats that had it."""
    repeats: dict[str, list[str]] = {}
    for outcome in outcomes.outcomes:
        if outcome.problem:
            repeats.setdefault(outcome.problem, []).append(str(outcome.repeat))
    return [
        f"{outcomes.case.case_id} repeat {', '.join(numbers)}: {problem}"
        for problem, numbers in repeats.items()
    ]


def _describe_batch_trials(outcomes: CaseOutcomes) -> list[str]:
    """The sizes of a ladder that were too large, as a reader of the table knows them from DLPerf.

    A search for the largest size passes many such sizes, which say nothing.
    """
    case = outcomes.case
    if "->" not in case.batch_search:
        return []
    sizes = {
        trial.batch_size_per_device
        for record in outcomes.records
        for trial in record.batch_trials
        if trial.is_out_of_memory
    }
    return [
        f"{case.framework} {case.model} {case.topology} {case.precision}: batch size {size}: "
        "out of memory"
        for size in sorted(sizes, reverse=True)
    ]


def _describe_publisher(outcomes: CaseOutcomes) -> list[str]:
    """A figure of which its publisher's own rule makes another one, by more than the tolerance."""
    published = [r for r in outcomes.records if r.publisher_samples_per_s]
    if not published:
        return []
    figure = find_median([record.publisher_samples_per_s for record in published])
    excess = figure / find_median([record.samples_per_s for record in published]) - 1
    if abs(excess) <= PUBLISHER_TOLERANCE:
        return []
    side = "above" if excess > 0 else "below"
    return [
        f"{outcomes.case.case_id}: by its publisher's rule ({published[0].publisher_rule}) the "
        f"median is {figure:.2f}, {abs(100 * excess):.1f} % {side} ours"
    ]


def name_problem(outcomes: CaseOutcomes) -> str:
    """One or two words for a cell; the footnotes have the whole story of each repeat."""
    if outcomes.case.reason:
        return "not run"
    problems = [outcome.problem for outcome in outcomes.outcomes]
    for sign, word in (("out of memory", "OOM"), ("failed", "failed"), ("invalid", "invalid")):
        if any(problem.startswith(sign) for problem in problems):
            return word
    return "missing"


def list_samples_per_s(outcomes: CaseOutcomes) -> list[float]:
    """Throughputs of the sound repeats, in their order."""
    return [record.samples_per_s for record in outcomes.records]


def find_unit(model: str) -> str:
    """Of the throughput: images/s; samples/s for a model of somebody else's script."""
    unit = load_model(model).SAMPLE_UNIT if model in list_models() else "samples"
    return f"{unit}/s"


def find_batch_sizes(outcomes: CaseOutcomes) -> tuple[int, ...]:
    """What was measured, ascending: one size, unless repeats of a search found several."""
    return tuple(sorted({record.case.batch_size_per_device for record in outcomes.records}))
