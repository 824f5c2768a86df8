"""Notes on the figures of cases, as rows of (case_id, scope, note).

A table prints the notes of the scopes that it declares as footnotes. Notes on machines and steps
are made where records are read; all others are computed from data frames.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from dlperf_slurm.contract.record import Record
from dlperf_slurm.results.collect import CaseOutcomes
from dlperf_slurm.results.footnotes import FootnoteTemplate, Note
from dlperf_slurm.results.ratios import count_needed_repeats
from dlperf_slurm.results.repeats import LATENCIES, is_wait_known
from dlperf_slurm.results.resource_usage import list_usage_notes
from dlperf_slurm.stats.median import (
    LATENCY_PERCENTILES,
    compute_median,
    count_needed_batches,
    count_needed_samples,
)
from dlperf_slurm.stats.stragglers import Machine, Repeat, SlowMachine, find_slow_machines

if TYPE_CHECKING:
    from pandas import DataFrame

# Scopes: CASE and DOUBT (unstable steps or repeats) for all layouts, TABLE for tables with
# intervals, the others for the tables of one subject. Notes on a ratio have its name as scope.
CASE, DOUBT, TABLE, DATA, USAGE, SCALING, LATENCY, GENERATION, RANKS = (
    "case", "doubt", "table", "data", "usage", "scaling", "latency", "generation", "ranks"
)  # fmt: skip

NoteRow = tuple[str, str, Note]

# a figure by a publisher's own rule is mentioned if it differs from ours by more
PUBLISHER_TOLERANCE = 0.02

WAIT_UNKNOWN = (
    "time spent waiting for data is unknown: it was measured on the hosts, which may fetch the "
    "next batch while a device still computes"
)
NOT_MEMORY = (
    "the search for the largest batch size ended before memory was full: larger batches need more "
    "samples than the data set has, or exceed the largest size of the search"
)


def list_case_notes(outcomes: CaseOutcomes, doubts: Iterable[Note]) -> list[NoteRow]:
    """Return the footnotes of a case that are computed from its records: (case id, scope, note).

    `doubts` are further footnotes, on unstable steps and repeats (`describe_stability`).
    """
    case, records = outcomes.case, outcomes.records
    own = [record for record in records if record.case.log_format is None]
    is_wait_unknown = not all(map(is_wait_known, own))
    # the search tried no batch size that ran out of memory
    is_not_memory = case.axes.is_largest_batch and not all(
        any(trial.is_out_of_memory for trial in record.batch_trials) for record in own
    )
    notes: dict[str, Iterable[Note]] = {
        CASE: _describe_case(outcomes),
        DOUBT: doubts,
        DATA: [*([WAIT_UNKNOWN] * is_wait_unknown), *([NOT_MEMORY] * is_not_memory)],
        USAGE: [*list_usage_notes(records), *_describe_unknown_peaks(outcomes)],
    }
    return [(case.case_id, scope, note) for scope, texts in notes.items() for note in texts]


def _describe_unknown_peaks(outcomes: CaseOutcomes) -> Iterator[str]:
    """Yield each distinct reason why peak FLOP/s or bandwidth of a device could not be measured."""
    found = [one.sidecars.peaks for one in outcomes.outcomes if one.sidecars.peaks]
    for problem in dict.fromkeys(d.problem for peaks in found for d in peaks.devices if d.problem):
        yield f"peak performance of the device not measured: {problem}"


def _describe_case(outcomes: CaseOutcomes) -> Iterator[Note]:
    """Yield the notes of the scope CASE: why a case was left out, or problems of its repeats."""
    yield from outcomes.case.notes
    if outcomes.case.reason:
        yield outcomes.case.reason
    if outcomes.skipped_repeats:
        yield (
            f"{outcomes.skipped_repeats} of {outcomes.case.repeats} repeats were not run, as the "
            "time limit set by --within had passed; to run them: `retry`"
        )
    yield from _describe_problems(outcomes)
    yield from _describe_batch_trials(outcomes)
    yield from _describe_publisher(outcomes.records)
    yield from _describe_printed(outcomes.records)


def _describe_problems(outcomes: CaseOutcomes) -> Iterator[Note]:
    """Yield a note on each distinct problem of a case, with the repeats that had it."""
    repeats: dict[str, list[str]] = {}
    for outcome in outcomes.outcomes:
        if outcome.problem:
            repeats.setdefault(outcome.problem, []).append(str(outcome.repeat))
    for problem, numbers in repeats.items():
        form = problem.replace("{", "{{").replace("}", "}}")
        subject = f"{outcomes.case.case_id} repeat {', '.join(numbers)}"
        yield FootnoteTemplate(form, subject=subject)


def _describe_batch_trials(outcomes: CaseOutcomes) -> Iterator[str]:
    """Yield a note on each batch size of a ladder that ran out of memory, in DLPerf's wording.

    A ladder is a list of batch sizes to try, the largest first. A search for the largest size gives
    no notes: many sizes are expected to fail there.
    """
    case, axes = outcomes.case, outcomes.case.axes
    sizes = {
        trial.batch_size_per_device
        for record in outcomes.records
        for trial in record.batch_trials
        if axes.batch_ladder and trial.is_out_of_memory
    }
    for size in sorted(sizes, reverse=True):
        yield (
            f"{axes.framework} {case.model} {axes.topology} {axes.precision}: batch size {size}: "
            "out of memory"
        )


def _describe_publisher(records: Sequence[Record]) -> Iterator[str]:
    """Yield a note if a log's throughput differs from that by its publisher's own rule.

    None if the two are equal within PUBLISHER_TOLERANCE.
    """
    published = [record for record in records if record.publisher_samples_per_s]
    if not published:
        return
    figure = compute_median([record.publisher_samples_per_s for record in published])
    excess = figure / compute_median([record.samples_per_s for record in published]) - 1
    if abs(excess) > PUBLISHER_TOLERANCE:
        side = "above" if excess > 0 else "below"
        yield (
            f"{published[0].case.case_id}: computed by the publisher's own rule "
            f"({published[0].publisher_rule}), the median is {figure:.2f}, "
            f"{abs(100 * excess):.1f} % {side} the value in this table"
        )


def _describe_printed(records: Sequence[Record]) -> Iterator[str]:
    """Yield a note on the figures that the trainer itself prints in its logs, such as the MFU."""
    printed: dict[str, list[float]] = {}
    for record in records:
        for unit, value in record.printed.items():
            printed.setdefault(unit, []).append(value)
    if printed:
        texts = [f"{compute_median(own):.4g} {unit}" for unit, own in printed.items()]
        yield f"printed by the trainer in its logs (medians over repeats): {' and '.join(texts)}"


def describe_few_repeats(cases: "DataFrame") -> list[NoteRow]:
    """Return notes on cases with too few independent samples for an interval of their median."""
    needed = count_needed_samples()
    few = cases[cases.values_measured.between(1, needed - 1)]
    return [
        (case_id, TABLE, f"a 95 % interval needs {needed} "
            f"{'blocks of repeats' if blocks > 1 else 'repeats'}; braces show the smallest and the "
            "largest value instead")
        for case_id, blocks in few.blocks.items()
    ]  # fmt: skip


def describe_ratios(cases: "DataFrame", name: str) -> list[NoteRow]:
    """Return notes on ratios of the column `name` that have too few repeats for an interval.

    Cases that `describe_few_repeats` has a note on get none here.
    """
    has_repeats = cases.values_measured >= count_needed_samples()
    lacks = cases[name].notna() & cases[f"{name}_low"].isna() & ~cases[f"{name}_is_baseline"]
    found = cases[has_repeats & lacks]
    points = found.get(f"{name}_together", [1] * len(found))
    return [(case, name, describe_missing_interval(n)) for case, n in zip(found.index, points)]


def describe_missing_interval(curve_points: int) -> Note:
    """Return a note on how many repeats a speedup needs for a confidence interval.

    The interval is one of `curve_points` of a scaling curve with joint 95 % confidence.
    """
    form = (
        "too few repeats for the 95 % interval of a speedup: the case and its baseline need {} each"
    )
    figures = (count_needed_repeats(curve_points),)
    if curve_points <= 1:
        return FootnoteTemplate(form, figures)
    form += (
        ", because 95 % is the joint confidence of the intervals of all {} speedups of a scaling "
        "curve"
    )
    return FootnoteTemplate(form, (*figures, curve_points))


def describe_sizes(cases: "DataFrame") -> list[NoteRow]:
    """Return notes on speedups whose baseline was measured with another batch size per device."""
    if not cases.has_batch_search.any():
        return []
    sizes = cases.batch_sizes_measured
    base = cases.baseline_case.map(sizes)
    other = cases[base.notna() & (base != "") & (sizes != "") & (sizes != base)]
    return [
        (case_id, SCALING,
            f"speedup and efficiency compare different batch sizes per device, {own} and {its}; "
            "the batch size alone changes the throughput of a device")
        for case_id, own, its in zip(
            other.index, sizes[other.index].str.replace(" ", " and "),
            base[other.index].str.replace(" ", " and "),
        )
    ]  # fmt: skip


def describe_exceeded_peaks(cases: "DataFrame") -> list[NoteRow]:
    """Return notes on cases whose throughput is above a measured or published peak."""
    return [
        (case_id, DOUBT, FootnoteTemplate(f"doubtful, {{:.0f}} % of the {name} peak: the steps did "
            "not do the whole work, or the measured time or the peak is wrong", (100 * share,)))
        for name in ("measured", "published")
        for case_id, share in cases[f"{name}_peak_share"].items()
        if share > 1
    ]  # fmt: skip


def describe_pooled(pooled: "DataFrame") -> list[NoteRow]:
    """Return notes on latency percentiles computed over all repeats together, or omitted."""
    notes: list[NoteRow] = []
    for row in pooled.itertuples():
        scope = LATENCY if row.phase == "latency" else GENERATION
        _, what = LATENCIES[row.phase]
        together, missing = split_percentiles(row.fewest, row.together)
        if together:
            text = (
                f"{_describe_percentiles(together)} are computed from the {row.together} {what} of "
                f"all repeats together, and have no interval: the {together[0]}th percentile needs "
                f"{count_needed_batches(together[0])} {what}, and one repeat has only {row.fewest}"
            )
            notes.append((row.case_id, scope, text))
        if missing:
            needed = _join(map(count_needed_batches, missing))
            text = (
                f"{_describe_percentiles(missing)} left out: {needed} {what} are needed, and all "
                f"repeats together have {row.together}"
            )
            notes.append((row.case_id, scope, text))
    return notes


def describe_slow_machines(ranks: "DataFrame") -> list[NoteRow]:
    """Return notes on hosts and devices that were the slowest in more repeats than by chance.

    `ranks` has the median step of each rank and repeat. Hosts are compared with each other, and
    devices with those of the same host; a host with a slow device is not reported itself.
    """
    devices = _group_comparable(ranks, ["case_id", "repeat", "host"], ["host", "local_rank"])
    by_host = ranks.groupby(["case_id", "repeat", "host"], sort=False, observed=True)
    by_host = by_host.median_step_seconds.median()
    hosts = _group_comparable(by_host.reset_index(), ["case_id", "repeat"], ["host"])
    slow_devices = find_slow_machines(devices)
    blamed = {one.machine.host for one in slow_devices}
    slow_hosts = [one for one in find_slow_machines(hosts) if one.machine.host not in blamed]
    found: list[NoteRow] = []
    for one in (*slow_hosts, *slow_devices):
        is_own = ranks.host == one.machine.host
        if one.machine.local_rank is not None:
            is_own &= ranks.local_rank == one.machine.local_rank
        text = describe_slow_machine(one)
        found += [(case_id, RANKS, text) for case_id in ranks.case_id[is_own].unique()]
    return found


def _group_comparable(ranks: "DataFrame", by: list[str], machine: list[str]) -> list[Repeat]:
    """Return {machine: median step in seconds} for each group of machines that are compared.

    A group has the rows with equal values in the columns `by`; the columns `machine` identify a
    machine (host or device).
    """
    keys = [*zip(*(ranks[name] for name in machine))]
    machines = {key: Machine(*key) for key in set(keys)}
    own, seconds = [machines[key] for key in keys], ranks.median_step_seconds.tolist()
    groups = ranks.groupby(by, sort=False, observed=True).indices.values()
    return [{own[i]: seconds[i] for i in group.tolist()} for group in groups]


def describe_slow_machine(slow: SlowMachine) -> str:
    """Describe how often and by how much a host or device was the slowest, and its p-value."""
    is_host = slow.machine.local_rank is None
    kind, others = ("hosts", "the hosts") if is_host else ("devices", "the devices of its host")
    return (
        f"{slow.machine} was the slowest of {others} in {slow.slowest_repeats} of {slow.repeats} "
        f"repeats, by {100 * slow.excess:.1f} % over the median of the others (p = "
        f"{slow.p_value:.2g}: binomial test, Holm-adjusted for all {kind})"
    )


def split_percentiles(fewest: int, together: int) -> tuple[list[int], list[int]]:
    """Return the latency percentiles to compute over all repeats together, and those to omit.

    `fewest` is the batch count of the smallest repeat, `together` that of all repeats. A percentile
    is omitted if even all repeats have too few batches for it.
    """
    pooled: list[int] = []
    missing: list[int] = []
    for percent in LATENCY_PERCENTILES:
        needed = count_needed_batches(percent)
        # per-repeat maxima may be below a pooled percentile: pool the maximum too
        if fewest >= needed and not (pooled and percent == LATENCY_PERCENTILES[-1]):
            continue
        (pooled if together >= needed else missing).append(percent)
    return pooled, missing


def _describe_percentiles(percents: Sequence[int]) -> str:
    """Return a phrase for percentiles of latency: "latency percentiles 95 and 99"."""
    return f"latency percentiles {_join(percents)}"


def _join(numbers: Iterable[int]) -> str:
    """Join numbers to a list in words: "90, 95 and 99"."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last
