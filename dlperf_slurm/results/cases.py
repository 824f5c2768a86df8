"""What all tables share: footnotes of cases, the names of columns, and words for what failed."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Optional

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.record import WHOLE_JOB, Record
from dlperf_slurm.matrix.axes import VARIANT_SPECS, list_variants
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import Note
from dlperf_slurm.results.ratios import Ratio
from dlperf_slurm.stats.median import compute_median
from dlperf_slurm.worker.models import list_models, load_model

# axes that tell columns of a table apart, with the value that goes without saying
VARIANT_AXES = {spec.name: spec.default for spec in VARIANT_SPECS}

# a publisher's own rule that differs by more is named
PUBLISHER_TOLERANCE = 0.02


def make_label(axes: Axes, names: Collection[str]) -> str:
    """The framework, with what is not default on these axes."""
    return " ".join([axes.framework, *list_variants(axes, names)])


def list_notes(outcomes: CaseOutcomes, doubts: Sequence[Note]) -> list[Note]:
    """The case's notes, why it was not run, and what else a reader of its figures has to know.

    The last of it are the `doubts` about its steps and repeats.
    """
    case = outcomes.case
    if case.reason:
        return [*case.notes, case.reason]
    return [
        *case.notes,
        *_describe_skipped(outcomes),
        *_describe_problems(outcomes),
        *_describe_batch_trials(outcomes),
        *_describe_publisher(outcomes),
        *doubts,
    ]


def list_ratio_notes(ratio: Ratio) -> list[str]:
    """Why a ratio has no interval."""
    if ratio.value is None or ratio.is_of_itself or ratio.interval is not None:
        return []
    together = f", for {ratio.curve_points} of a curve together" if ratio.curve_points > 1 else ""
    return [
        "too few repeats for the 95 % interval of a speedup: it takes "
        f"{ratio.needed_values} of each of the two cases{together}"
    ]


def _describe_skipped(outcomes: CaseOutcomes) -> list[str]:
    if not outcomes.skipped_repeats:
        return []
    return [
        f"{outcomes.skipped_repeats} of {outcomes.case.repeats} repeats were left out, as the time "
        "was over that `--within` gave the run; a `retry` measures them"
    ]


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
    case, axes = outcomes.case, outcomes.case.axes
    if not axes.batch_ladder:
        return []
    sizes = {
        trial.batch_size_per_device
        for record in outcomes.records
        for trial in record.batch_trials
        if trial.is_out_of_memory
    }
    return [
        f"{axes.framework} {case.model} {axes.topology} {axes.precision}: batch size {size}: "
        "out of memory"
        for size in sorted(sizes, reverse=True)
    ]


def _describe_publisher(outcomes: CaseOutcomes) -> list[str]:
    """A figure of which its publisher's own rule makes another one, by more than the tolerance."""
    published = [r for r in outcomes.records if r.publisher_samples_per_s]
    if not published:
        return []
    figure = compute_median([record.publisher_samples_per_s for record in published])
    excess = figure / compute_median([record.samples_per_s for record in published]) - 1
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
    return name_repeat_problem(*(outcome.problem for outcome in outcomes.outcomes))


def name_repeat_problem(*problems: str) -> str:
    """A word for what is wrong with these repeats, the first of its kinds that any has."""
    for sign, word in (("out of memory", "OOM"), ("failed", "failed"), ("invalid", "invalid")):
        if any(problem.startswith(sign) for problem in problems):
            return word
    return "missing"


def find_unit(model: str) -> str:
    """The unit of a throughput: images/s; samples/s for a model of somebody else's script."""
    unit = load_model(model).SAMPLE_UNIT if model in list_models() else "samples"
    return f"{unit}/s"


def find_tokens_per_sample(records: Sequence[Record]) -> Optional[int]:
    """What a throughput in tokens counts of a sample; None where it is told in samples alone.

    Of a generation it is what was generated, without the prompt.
    The sizes of a model of somebody else's script are not known.
    """
    if not records or records[0].case.log_format:
        return None
    case = records[0].case
    if case.axes.is_generation:
        return case.axes.output_tokens
    definition = load_model(case.model).Definition(**case.model_parameters)
    return int(definition.tokens_per_sample) or None


def find_batch_sizes(outcomes: CaseOutcomes) -> tuple[int, ...]:
    """What was measured, ascending: one size, unless repeats of a search found several."""
    return tuple(sorted({record.case.axes.batch_size for record in outcomes.records}))


def describe_hardware(outcomes: CaseOutcomes) -> str:
    """The devices of the first sound record by their names, on how many nodes."""
    if not outcomes.records:
        return ""
    record = outcomes.records[0]
    names = Counter(rank.device_name for rank in record.ranks if rank.device_name)
    if [rank.rank for rank in record.ranks] == [WHOLE_JOB]:
        names = Counter(dict.fromkeys(names, record.case.world_size))
    if record.case.device == "cpu":
        names = Counter({record.platform.get("cpu_model") or "cpu": record.case.world_size})
    devices = " and ".join(f"{count}x {name}" for name, count in sorted(names.items()))
    nodes = record.case.nodes
    return f"{devices or 'not recorded'}, {nodes} {'node' if nodes == 1 else 'nodes'}"
