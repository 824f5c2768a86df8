"""The outcomes of two runs -> speed ratio and verdict of each case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.contract.axes import INFER
from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.results.case_columns import CASES
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.columns import (
    COUNT,
    FLAG,
    LISTS,
    NUMBER,
    TEXT,
    Column,
    copy_column,
    make_frame_of_values,
    with_bounds,
)
from dlperf_slurm.results.columns import THROUGHPUT as OWN_UNIT
from dlperf_slurm.results.comparability import (
    describe_changes,
    describe_stolen_time,
    describe_tool_changes,
    explain_absence,
    find_other_work,
    list_provenance,
    list_work,
)
from dlperf_slurm.results.labels import IDENTITY, list_identity
from dlperf_slurm.results.ratios import compute_ratio, take_paired_ratio
from dlperf_slurm.results.repeats import describe_hardware
from dlperf_slurm.results.significance import DEFAULT_MARGIN, NOT_COMPARABLE, Verdict, decide
from dlperf_slurm.stats.median import compute_known_median
from dlperf_slurm.stats.power import MAX_REPEATS
from dlperf_slurm.stats.signed_rank import remove_drift

if TYPE_CHECKING:
    from pandas import DataFrame, Series

THROUGHPUT = "throughput"
MEAN_LATENCY = "mean latency"

# The samples to compare: one per repeat, or block medians if `counted` is "blocks". `first_run` is
# "A" or "B" if the runs were measured in turns, so that value i of both belong together.
PAIR: dict[str, str] = {
    "quantity": TEXT,
    "counted": TEXT,
    "samples_a": LISTS,
    "samples_b": LISTS,
    "reason": TEXT,
    "changes": LISTS,
    "first_run": TEXT,
}
# the result of a comparison; see `decide_pairs`
FOUND: dict[str, str] = {
    "speed_ratio": NUMBER,
    "speed_ratio_low": NUMBER,
    "speed_ratio_high": NUMBER,
    "reason": TEXT,
    "verdict": TEXT,
    "p_value": NUMBER,
    "is_within_margin": FLAG,
    "is_beyond_limit": FLAG,
    "is_within_limit": FLAG,
    "deciding_repeats": COUNT,
}

# a row of a data frame: values by column name
Row = Mapping[str, Any]


@dataclass(frozen=True)
class RunComparison:
    """The comparison of run B with run A.

    `limit` is the allowed slowdown, such as 0.03, or None. Differences within the `margin`, such as
    0.02, count as equivalent. `pairs` has one row per quantity (throughput, mean latency) of each
    case, with the columns IDENTITY, PAIR and FOUND. `is_in_sequence`: a case of one run ended
    before that of the other began. `is_paired`: the runs were measured in turns.
    """

    manifest_a: Manifest
    manifest_b: Manifest
    limit: Optional[float]
    margin: float
    pairs: "DataFrame" = field(compare=False, repr=False)
    hardware_a: str
    hardware_b: str
    is_in_sequence: bool = False

    @property
    def is_paired(self) -> bool:
        return bool((self.pairs.first_run != "").any())

    @property
    def test_count(self) -> int:
        """The number of tests that the verdicts are adjusted for (Holm)."""
        return int(self.pairs.p_value.notna().sum())


def compare_runs(
    manifest_a: Manifest,
    cases_a: Sequence[CaseOutcomes],
    manifest_b: Manifest,
    cases_b: Sequence[CaseOutcomes],
    limit: Optional[float] = None,
    margin: Optional[float] = None,
) -> RunComparison:
    """Compare every case of either run, in A's order, followed by the cases that only B has.

    `limit` is the allowed slowdown of B, and `margin` the difference that counts as equivalent, as
    fractions; the margin defaults to the limit, and to DEFAULT_MARGIN without a limit.
    """
    margin = margin or limit or DEFAULT_MARGIN
    by_id_a, by_id_b = ({c.case.case_id: c for c in cases} for cases in (cases_a, cases_b))
    told = [(manifest.tool, manifest.site_name) for manifest in (manifest_a, manifest_b)]
    tools = describe_tool_changes(*told)
    is_in_sequence = not (manifest_a.is_import or manifest_b.is_import) and any(
        _is_in_sequence(by_id_a[case_id], by_id_b[case_id]) for case_id in {*by_id_a} & {*by_id_b}
    )
    run_ids, first_run = (manifest_a.run_id, manifest_b.run_id), ""
    is_interleaved = len({*run_ids}) == 2 and {*manifest_a.interleaved} == {*run_ids}
    if is_interleaved and not is_in_sequence:
        first_run = "A" if manifest_a.interleaved[0] == run_ids[0] else "B"
    rows = [
        row
        for case_id in {**by_id_a, **by_id_b}
        for row in _list_pairs(by_id_a.get(case_id), by_id_b.get(case_id), tools, first_run)
    ]
    pairs = make_frame_of_values({**IDENTITY, **PAIR}, rows)
    hardware_a, hardware_b = map(_describe_largest, (cases_a, cases_b))
    decided = decide_pairs(pairs, limit, margin)
    return RunComparison(
        manifest_a, manifest_b, limit, margin, decided, hardware_a, hardware_b, is_in_sequence
    )


def _is_in_sequence(a: CaseOutcomes, b: CaseOutcomes) -> bool:
    """Return whether all repeats of a case in one run ended before those in the other began."""
    if not a.records or not b.records:
        return False
    starts = [min(record.started_at for record in case.records) for case in (a, b)]
    ends = [max(record.ended_at for record in case.records) for case in (a, b)]
    return ends[0] <= starts[1] or ends[1] <= starts[0]


def _describe_largest(cases: Sequence[CaseOutcomes]) -> str:
    """Describe the devices of the case with the most devices: "up to 16x NVIDIA H200, 2 nodes"."""
    records = (record for case in cases for record in case.records)
    largest = max(records, key=lambda record: record.case.world_size, default=None)
    return "nothing measured" if largest is None else f"up to {describe_hardware(largest)}"


def _list_pairs(
    a: Optional[CaseOutcomes], b: Optional[CaseOutcomes], tools: Sequence[str], first_run: str
) -> Iterator[tuple[object, ...]]:
    """List the rows of a case: throughput and, for inference, mean latency of A and B.

    `a` or `b` is None if that run does not have the case. If the runs cannot be compared, the only
    row is throughput, with the reason. `tools` are the changes of the tool and the site, which all
    cases share. `first_run` is "A" or "B" if the runs were measured in turns, else ""; then only
    repeats that are valid in both count.
    """
    one = a or b
    assert one is not None, "the case is in neither run"
    identity, counted, changes = list_identity(one.case), "repeats", []
    if a is None or b is None:
        reason = f"only run {'A' if a else 'B'} has this case"
    else:
        reason = explain_absence("A", a) or explain_absence("B", b)
        reason = reason or find_other_work(list_work(a.records), list_work(b.records))
    if a and b and first_run and not reason:
        common = {number for number, _ in a.rates} & {number for number, _ in b.rates}
        if common:
            a, b = (
                replace(case, outcomes=tuple(o for o in case.outcomes if o.repeat in common))
                for case in (a, b)
            )
        else:
            reason = "no repeat is valid in both runs"
    quantities = [THROUGHPUT]
    if a and b and not reason:
        provenance = (list_provenance(a.records), list_provenance(b.records))
        stolen = describe_stolen_time(a.records, b.records)
        changes = [*tools, *describe_changes(*provenance), *stolen]
        counted = "blocks" if a.has_blocks and b.has_blocks else "repeats"
        if a.records[0].case.axes.mode == INFER:
            quantities.append(MEAN_LATENCY)
    for quantity in quantities:
        samples = [list_samples(run, quantity) if run else () for run in (a, b)]
        yield (*identity, quantity, counted, *samples, reason, changes, first_run)


def list_samples(outcomes: CaseOutcomes, quantity: str) -> tuple[float, ...]:
    """Return the samples of a quantity, THROUGHPUT (samples/s) or MEAN_LATENCY (seconds).

    There is one per valid repeat, or per block if repeats are spread over blocks.
    """
    if quantity == THROUGHPUT:
        return outcomes.units
    measured = ((o.repeat, o.latencies.get("latency")) for o in outcomes.outcomes)
    return outcomes.reduce_to_samples([(repeat, one.mean) for repeat, one in measured if one])


def decide_pairs(
    pairs: "DataFrame", limit: Optional[float], margin: float = DEFAULT_MARGIN, group: str = ""
) -> "DataFrame":
    """Compare the samples of A and B in each row of `pairs`, and add the columns FOUND.

    `pairs` has the columns PAIR; rows with a `reason` are not compared. `limit` is the allowed
    slowdown of B, or None. `speed_ratio` is the ratio of medians, or with a `first_run` (runs
    measured in turns) the median ratio of pairs without their common trend: B's speed over A's,
    below 1 B is slower, also for latencies. Its interval has individual confidence. `p_value`,
    `verdict` and `is_beyond_limit` (B is slower by more than the limit) are adjusted for all rows
    with equal values in the column named `group`, or for all rows; `is_within_limit` (B is not
    slower by more) is not adjusted. `is_within_margin`: the difference is shown to be smaller than
    `margin`. The new `reason` says why there is no verdict; `deciding_repeats` is the approximate
    number of repeats per run that would decide.
    """
    from pandas import concat

    samples = [*zip(pairs.quantity, pairs.samples_a, pairs.samples_b)]
    firsts = pairs.first_run.tolist()
    reasons, counted = pairs.reason.tolist(), pairs.counted.tolist()
    # the ratio second / first of each pair is B's speed over A's
    freed = [
        (a, b) if reason else _remove_drift(a, b, first)
        for (_, a, b), first, reason in zip(samples, firsts, reasons)
    ]
    speeds = [
        (b, a) if quantity == MEAN_LATENCY else (a, b)
        for (quantity, *_), (a, b) in zip(samples, freed)
    ]
    found = [(nan, nan, nan, reason, *Verdict(NOT_COMPARABLE)) for reason in reasons]
    groups: dict[object, list[int]] = {}
    for i, key in enumerate(pairs[group] if group else [""] * len(pairs)):
        if all(speeds[i]) and not reasons[i]:
            groups.setdefault(key, []).append(i)
    for own in groups.values():
        is_paired = bool(firsts[own[0]])
        verdicts = decide([speeds[i] for i in own], limit, margin, is_paired)
        for i, verdict in zip(own, verdicts):
            ratio = take_paired_ratio(*speeds[i]) if is_paired else compute_ratio(*speeds[i])
            counts = f"{len(samples[i][1])} and {len(samples[i][2])} {counted[i]}"
            found[i] = (*ratio, _explain(verdict, counts, limit), *verdict)
    known = pairs.drop(columns="reason").reset_index(drop=True)
    return concat([known, make_frame_of_values(FOUND, found)], axis=1)


def _remove_drift(
    a: Sequence[float], b: Sequence[float], first_run: str
) -> tuple[Sequence[float], Sequence[float]]:
    """Remove the common trend over time from samples that two runs measured in turns.

    Value i of `a` and value i of `b` are adjacent in time, the run `first_run` ("A" or "B") first.
    Unchanged if `first_run` is "".
    """
    if not first_run or not a or not b:
        return a, b
    if first_run == "A":
        return remove_drift(a, b)
    of_b, of_a = remove_drift(b, a)
    return of_a, of_b


def _explain(verdict: Verdict, counts: str, limit: Optional[float]) -> str:
    """Return how many repeats would decide an undecided pair, in a sentence; "" if decided.

    `counts` describes the samples of both runs: "6 and 7 repeats". To decide is to show that the
    runs differ or, with a `limit`, that the difference is beyond the allowed slowdown.
    """
    count = verdict.deciding_repeats
    if count is None:
        return ""
    if verdict.p_value is None:
        return f"{counts}; at least {count} in each run are needed to detect any difference"
    shown = f"more than {MAX_REPEATS}" if count >= MAX_REPEATS else f"about {count}"
    what = "the runs differ" if limit is None else "the difference is beyond the limit"
    return (
        f"{counts}; {shown} in each run would show whether {what}, if repeats keep varying as much"
    )


def share_case_column(name: str) -> Column:
    """Return a column of CASES without its interval, for another frame that has its name."""
    column = next(column for column in CASES if column.name == name)
    return replace(column, compute=itemgetter(name), bounds=(), extremes=(), hidden=())


def declare_speed_ratio(meaning: str) -> Column:
    """Declare the column `speed_ratio` with its interval; `meaning` documents it."""
    bounds = with_bounds("speed_ratio")
    names = ["speed_ratio", *bounds]
    return Column(names[0], NUMBER, "ratio", meaning, lambda pairs: pairs[names], bounds)


def _find_medians(pairs: "DataFrame", samples: "Series") -> "Series":
    """Return the median of each pair's samples in printed units: latencies in ms, from seconds."""
    factors = pairs.quantity.map({MEAN_LATENCY: 1000.0}).fillna(1.0)
    return factors * samples.map(compute_known_median).astype(NUMBER)


COMPARISON: tuple[Column, ...] = (
    *map(share_case_column, list(IDENTITY)[:-1]),
    copy_column("quantity", TEXT, "", "what is compared: throughput or mean latency"),
    Column("unit", TEXT, "", "unit of both medians",
        lambda pairs: pairs.unit.mask(pairs.quantity == MEAN_LATENCY, "ms")),
    Column("median_a", NUMBER, OWN_UNIT, "median over the valid repeats of run A",
        lambda pairs: _find_medians(pairs, pairs.samples_a)),
    Column("median_b", NUMBER, OWN_UNIT, "median over the valid repeats of run B",
        lambda pairs: _find_medians(pairs, pairs.samples_b)),
    Column("repeats_a", COUNT, "repeats", "repeats of run A with a valid record",
        lambda pairs: pairs.samples_a.map(len)),
    Column("repeats_b", COUNT, "repeats", "repeats of run B with a valid record",
        lambda pairs: pairs.samples_b.map(len)),
    declare_speed_ratio("speed of B divided by speed of A; below 1, B is slower, also for "
        "latencies"),
    copy_column("p_value", NUMBER, "", "p-value of the test for any difference, adjusted for all "
        "comparisons (Holm)"),
    copy_column("verdict", TEXT, "", "speed of B compared with A: faster, slower, equivalent, "
        "undecided, not comparable"),
    copy_column("deciding_repeats", COUNT, "repeats", "approximate number of repeats of each run "
        "that a verdict needs; missing if there is a verdict, or if no number of repeats would "
        "give one"),
    copy_column("reason", TEXT, "", "why there is no verdict, or what is needed for one; empty if "
        "there is a verdict"),
    Column("changes", TEXT, "", "what else differs between the runs, besides the speed; joined by "
        "semicolons", lambda pairs: pairs.changes.map("; ".join)),
)  # fmt: skip
