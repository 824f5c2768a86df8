"""A run and a reference -> for each case of the reference: accepted, rejected, or why neither."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.plain_text import count_things, matches_pattern
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.columns import LISTS, NUMBER, TEXT, list_records, make_frame_of_values
from dlperf_slurm.results.comparability import describe_changes, explain_absence, find_other_work
from dlperf_slurm.results.compare import PAIR, THROUGHPUT, decide_pairs
from dlperf_slurm.results.labels import get_unit
from dlperf_slurm.results.reference import ReferenceCase, list_facts, list_nodes
from dlperf_slurm.results.significance import NOT_COMPARABLE, SIGNIFICANCE, UNDECIDED
from dlperf_slurm.stats.median import compute_median, compute_median_interval, count_needed_samples
from dlperf_slurm.stats.tolerance import compute_tolerances

if TYPE_CHECKING:
    from pandas import DataFrame

ACCEPTED = "accepted"
REJECTED = "rejected"
MISSING = "missing"

# a wider tolerance says that the reference knows too little, not that the machine may be so slow
MAX_TOLERANCE = 0.1

# A row per case: `bound` is the least throughput to accept, which is `expected` reduced by the
# `tolerance`; `speed_ratio` is the measured median over `expected`, with its 95 % interval.
ACCEPTANCE: dict[str, str] = {
    "case_id": TEXT,
    "unit": TEXT,
    "basis": TEXT,
    "expected": NUMBER,
    "tolerance": NUMBER,
    "bound": NUMBER,
    "samples": LISTS,
    "speed_ratio": NUMBER,
    "speed_ratio_low": NUMBER,
    "speed_ratio_high": NUMBER,
    "verdict": TEXT,
    "reason": TEXT,
    "changes": LISTS,
}


@dataclass(frozen=True)
class Acceptance:
    """The verdict on each case of a run, judged by a reference.

    `cases` has one row per case of the reference, with the columns ACCEPTANCE. `tolerance` is the
    slowdown that the user allowed, such as 0.05, or None. `others` are the measured cases of the
    run that are not in the reference.
    """

    manifest: Manifest
    reference: str
    tolerance: Optional[float]
    others: Sequence[str]
    cases: "DataFrame" = field(compare=False, repr=False)


@dataclass(frozen=True)
class _Pair:
    """A case of the reference with the same case of the run.

    `problem` says why the two are not compared, else "".
    """

    case_id: str
    entry: ReferenceCase
    measured: Optional[CaseOutcomes]
    problem: str
    changes: Sequence[str] = ()

    @property
    def units(self) -> tuple[float, ...]:
        return self.measured.units if self.measured else ()

    @property
    def level(self) -> float:
        """The reference's throughput; NaN for a figure per device if the case was not run."""
        if self.measured is None and not self.entry.runs:
            return nan
        return self.entry.compute_level(self.measured.case.axes.world_size if self.measured else 1)

    def list_slowed(self, tolerance: float) -> tuple[float, ...]:
        """Return the reference's throughputs, each reduced by `tolerance`, such as 0.05.

        The values of each run are first scaled to the same median, `level`. () for a contract's
        figure.
        """
        own = [(run.units, compute_median(run.units)) for run in self.entry.runs]
        factor = (1 - tolerance) * self.level
        return tuple(factor * value / median for units, median in own for value in units)


def compare_with_reference(
    manifest: Manifest,
    cases: Sequence[CaseOutcomes],
    reference: Sequence[ReferenceCase],
    name: str,
    tolerance: Optional[float] = None,
) -> Acceptance:
    """Compare each case of a reference with a run: accepted, rejected, or why it is neither.

    `name` is the reference's file name. `tolerance` is the allowed slowdown (0.05: 5 %); None: the
    variation between the reference's own runs, and 0 for a contract's figure. A case with measured
    runs is judged by the test of `compare --fail-if-slower` against the reference's repeats, slowed
    down by the tolerance; a contract's figure is compared with the interval of the median.
    """
    pairs = [pair for entry in reference for pair in _match(manifest, cases, entry)]
    tolerances = _find_tolerances(pairs, tolerance)
    frame = make_frame_of_values(PAIR, [
        (THROUGHPUT, "repeats", pair.list_slowed(allowed or 0.0),
            () if pair.problem else pair.units, pair.problem, [], "")
        for pair, allowed in zip(pairs, tolerances)
    ])  # fmt: skip
    most = MAX_TOLERANCE if tolerance is None else 1.0
    figures = sum(not pair.entry.runs and not pair.problem for pair in pairs)
    rows = [
        _make_row(pair, allowed, most, found if pair.entry.runs or pair.problem
            else _compare_figure(pair, allowed or 0.0, figures))
        for pair, allowed, found in zip(pairs, tolerances, list_records(decide_pairs(frame, 0.0)))
    ]  # fmt: skip
    known = {pair.case_id for pair in pairs}
    others = [c.case.case_id for c in cases if c.records and c.case.case_id not in known]
    return Acceptance(manifest, name, tolerance, others, make_frame_of_values(ACCEPTANCE, rows))


def _match(
    manifest: Manifest, cases: Sequence[CaseOutcomes], entry: ReferenceCase
) -> Iterator[_Pair]:
    """Yield a pair of the reference's entry and each case of the run that the entry selects.

    If the entry selects none, or a case has no valid result, yield a pair without a measured case,
    whose `problem` says so.
    """
    ids = {c.case.case_id: c for c in cases}
    found = [case_id for case_id in ids if case_id == entry.case]
    if not found and not entry.runs:
        found = [case_id for case_id in ids if matches_pattern(case_id, [entry.case])]
    if not found:
        yield _Pair(entry.case, entry, None, "the run does not have this case")
    for case_id in found:
        outcomes = ids[case_id]
        if absence := explain_absence("the run", outcomes):
            yield _Pair(case_id, entry, None, absence)
            continue
        work, provenance = list_facts([(manifest, outcomes)])
        stated = {**work, **{name: [*values] for name, values in entry.work.items()}}
        # a value that some run of the reference had is no change
        around = {
            name: provenance[name] if {*provenance.get(name, ())} <= {*values} else [*values]
            for name, values in entry.provenance.items()
        }
        if not entry.runs:
            provenance = {name: provenance[name] for name in {*around} & {*provenance}}
        changes = describe_changes(around, provenance)
        if manifest.run_id in (run.run_id for run in entry.runs):
            changes.append("this run is one of those that the reference was made from")
        nodes = {run.nodes for run in entry.runs}
        if len(nodes) == 1 and not {*list_nodes(outcomes)} <= {*entry.runs[0].nodes}:
            changes.append("all runs of the reference used the same nodes, and this run used "
                "others: the tolerance does not include differences between nodes")  # fmt: skip
        yield _Pair(case_id, entry, outcomes, find_other_work(stated, work), changes)


def _find_tolerances(pairs: Sequence[_Pair], stated: Optional[float]) -> list[Optional[float]]:
    """Return the allowed slowdown of each pair, such as 0.05; None if it is unknown.

    It is `stated`, unless that is None. Otherwise it is 0 where the reference is a figure of a
    contract, else what the reference's runs vary by, unknown with a single run.
    """
    if stated is not None:
        return [stated] * len(pairs)
    found: list[Optional[float]] = [None if pair.entry.runs else 0.0 for pair in pairs]
    several = [i for i, pair in enumerate(pairs) if len(pair.entry.runs) > 1]
    if several:
        medians = [
            {run.run_id: compute_median(run.units) for run in pairs[i].entry.runs} for i in several
        ]
        run_ids = dict.fromkeys(run_id for own in medians for run_id in own)
        rows = [[own.get(run_id, nan) for run_id in run_ids] for own in medians]
        for i, value in zip(several, compute_tolerances(rows)):
            found[i] = value
    return found


def _compare_figure(pair: _Pair, tolerance: float, tests: int) -> dict[str, Any]:
    """Compare the measured median's interval with a contract's figure, reduced by `tolerance`.

    Returns a speed ratio with bounds, and whether it is within or beyond the limit, by name of the
    columns FOUND. Rejections are corrected for the number of `tests` (Bonferroni).
    """
    samples, figure = pair.units, (1 - tolerance) * pair.level
    needed = count_needed_samples(1 - SIGNIFICANCE / tests)
    accepting = compute_median_interval(samples, 1 - 2 * SIGNIFICANCE)
    rejecting = compute_median_interval(samples, 1 - SIGNIFICANCE / tests)
    shown = compute_median_interval(samples)
    return {
        "speed_ratio": compute_median(samples) / figure,
        "speed_ratio_low": shown and shown.low / figure,
        "speed_ratio_high": shown and shown.high / figure,
        "is_within_limit": accepting is not None and accepting.low >= figure,
        "is_beyond_limit": rejecting is not None and rejecting.high < figure,
        "deciding_repeats": needed if rejecting is None else None,
    }


def _make_row(
    pair: _Pair, tolerance: Optional[float], most: float, found: Mapping[str, Any]
) -> tuple[object, ...]:
    """Return the values of the columns ACCEPTANCE for a pair: its figures, verdict and reason.

    `found` has the result of the comparison by name of the columns FOUND. A case is not accepted
    with a tolerance above `most`.
    """
    verdict, reason = UNDECIDED, ""
    if pair.problem:
        verdict, reason = NOT_COMPARABLE if pair.measured else MISSING, pair.problem
    elif tolerance is None:
        reason = "the reference has one run, so the variation between runs is unknown: make the " \
            "reference from at least two runs, or give --tolerance"  # fmt: skip
    elif found["is_beyond_limit"]:
        verdict = REJECTED
    elif found["is_within_limit"] and tolerance <= most:
        verdict = ACCEPTED
    elif found["is_within_limit"]:
        reason = "the reference's runs vary too much, or are too few, for a useful bound: make " \
            "the reference from more runs, or give --tolerance"  # fmt: skip
    else:
        needed = "the 95 % interval contains the bound"
        if found["deciding_repeats"] is not None:
            bound = "about" if found.get("p_value") is not None else "at least"
            needed = f"{bound} {found['deciding_repeats']} repeats are needed for a verdict"
        reason = f"{count_things(len(pair.units), 'repeat')}; {needed}"
    ends = (found[name] for name in ("speed_ratio", "speed_ratio_low", "speed_ratio_high"))
    kept = 1 - (tolerance or 0.0)
    return (
        pair.case_id,
        get_unit(pair.measured.case.model, pair.measured.case.unit) if pair.measured else None,
        _describe_basis(pair.entry),
        pair.level,
        tolerance,
        None if tolerance is None else kept * pair.level,
        pair.units,
        *(None if end is None else kept * end for end in ends),
        verdict,
        reason,
        pair.changes,
    )


def _describe_basis(entry: ReferenceCase) -> str:
    """Describe a case's reference: "2 runs, 12 repeats, 3 nodes", or a contract's figure."""
    if not entry.runs:
        figure = entry.at_least_samples_per_s_per_device
        return f"contract: at least {figure:g} samples/s per device"
    repeats = sum(len(block) for run in entry.runs for block in run.samples_per_s)
    nodes = len({node for run in entry.runs for node in run.nodes})
    counts = ((len(entry.runs), "run"), (repeats, "repeat"), (nodes, "node"))
    return ", ".join(count_things(*count) for count in counts)
