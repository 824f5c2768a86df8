"""A run's frame -> what came out of it, in sentences: the first thing that a report says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.reports.cells import Cell
from dlperf_slurm.reports.tables import find_range
from dlperf_slurm.results.cases import VARIANT_AXES, make_label
from dlperf_slurm.results.frame import CaseRow, list_rows
from dlperf_slurm.results.stability import MAX_VARIATION
from dlperf_slurm.stats.median import compute_coefficient_of_variation

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Finding:
    """A sentence about a run, which may be a reason to doubt its figures."""

    text: str
    is_doubt: bool = False


def list_findings(frame: "DataFrame") -> tuple[Finding, ...]:
    """The best throughput of each model, scaling, what a precision brings, and what is doubtful."""
    rows = [row for row in list_rows(frame) if row.samples_per_s is not None]
    by_model: dict[tuple[str, str], list[CaseRow]] = {}
    for row in rows:
        by_model.setdefault((row.model, row.mode), []).append(row)
    findings = []
    for group in by_model.values():
        findings += [_describe_best(group), *_describe_scaling(group), *_describe_precision(group)]
    return (*map(Finding, findings), *(Finding(text, True) for text in _describe_doubts(rows)))


def describe_certainty(frame: "DataFrame") -> str:
    """Return how far the medians of a run are known, by their 95 % intervals if there are any."""
    rows = [row for row in list_rows(frame) if row.samples_per_s is not None]
    widths = [
        max(abs(bound / row.samples_per_s - 1) for bound in (row.interval.low, row.interval.high))
        for row in rows
        if row.samples_per_s and row.interval is not None
    ]
    cases = count_things(len(rows), "case")
    if not widths:
        return f"none of {cases} has enough repeats for a 95 % interval"
    return (
        f"{len(widths)} of {cases} {'has a' if len(widths) == 1 else 'have'} 95 % "
        f"interval{'s' * (len(widths) > 1)}, up to {100 * max(widths):.0f} % from the median"
    )


def _describe_best(rows: Sequence[CaseRow]) -> str:
    best = max(rows, key=lambda row: row.samples_per_s or 0.0)
    verb = "trains" if best.mode == TRAIN else "infers"
    topology = parse_topology(best.topology)
    nodes = count_things(topology.nodes, "node")
    devices = count_things(topology.devices_per_node, "device")
    # as the tables have it: with the digits that its bounds know
    rate = Cell(best.samples_per_s, interval=best.interval, range=find_range(best.samples)).text
    return (
        f"{best.model} {verb} at {rate} {best.unit} at best: {_name(best, rows)} on "
        f"{best.topology} ({nodes} with {devices}{' each' if topology.nodes > 1 else ''})."
    )


def _describe_scaling(rows: Sequence[CaseRow]) -> Iterator[str]:
    """The efficiency at the largest topology, from the best case to the worst."""
    scaled = [
        (row.weak_scaling_efficiency.value, row)
        for row in rows
        if row.weak_scaling_efficiency.value is not None
        and not row.weak_scaling_efficiency.is_of_itself
        and not _is_beyond_its_devices(row)
    ]
    if not scaled:
        return
    largest = max((row.topology for _, row in scaled), key=lambda t: parse_topology(t).world_size)
    at_largest = [(value, row) for value, row in scaled if row.topology == largest]
    high, best = max(at_largest, key=lambda pair: pair[0])
    low, worst = min(at_largest, key=lambda pair: pair[0])
    text = f"On {largest} its efficiency over {best.baseline} is {100 * high:.0f} %"
    text += f" ({_name(best, rows)})"
    worse = f", and {100 * low:.0f} % at worst ({_name(worst, rows)})" if low < high else ""
    yield f"{text}{worse}."


def _is_beyond_its_devices(row: CaseRow) -> bool:
    """Whether each device is said to do more than the baseline's, beyond what chance does."""
    efficiency = row.weak_scaling_efficiency
    if efficiency.value is None or efficiency.is_of_itself:
        return False
    if efficiency.interval is None:
        return efficiency.value > 1 + MAX_VARIATION
    return efficiency.interval.low > 1


def _describe_precision(rows: Sequence[CaseRow]) -> Iterator[str]:
    """The largest gain and the largest loss of a reduced precision that their intervals show."""
    shown = [
        (row.precision_speedup.value, row.precision_speedup.interval, row)
        for row in rows
        if row.precision_speedup.value is not None and row.precision_speedup.interval is not None
    ]
    gains = [(value, row) for value, interval, row in shown if interval.low > 1]
    losses = [(value, row) for value, interval, row in shown if interval.high < 1]
    for found, words, choose in ((gains, "gains most", max), (losses, "loses most", min)):
        if found:
            value, row = choose(found, key=lambda pair: pair[0])
            yield (
                f"{row.precision} {words} on {row.topology} ({_name(row, rows)}): "
                f"{value:.3g} times as fast as {row.reference_precision}."
            )


def _describe_doubts(rows: Sequence[CaseRow]) -> Iterator[str]:
    cases = count_things(len(rows), "case")
    spread = [
        (compute_coefficient_of_variation([1 / rate for rate in row.samples]), row) for row in rows
    ]
    varied = [(share, row) for share, row in spread if share > MAX_VARIATION]
    if varied:
        share, row = max(varied, key=lambda pair: pair[0])
        yield (
            f"Doubtful: the repeats of {len(varied)} of {cases} vary by more than "
            f"{100 * MAX_VARIATION:.0f} %, those of {row.case_id} most, by {100 * share:.0f} %."
        )
    beyond = [row for row in rows if _is_beyond_its_devices(row)]
    if beyond:
        most = max(beyond, key=lambda row: row.weak_scaling_efficiency.value or 0.0)
        verb = "scales" if len(beyond) == 1 else "scale"
        yield (
            f"Doubtful: {count_things(len(beyond), 'case')} of {len(rows)} {verb} beyond the "
            f"devices: {most.case_id} does {most.weak_scaling_efficiency.value:.3g} times as much "
            f"on each as {most.baseline}."
        )
    few = [row for row in rows if row.interval is None]
    if few:
        yield (
            f"Doubtful: {len(few)} of {cases} {'has' if len(few) == 1 else 'have'} too few sound "
            "repeats for an interval."
        )


def _name(row: CaseRow, rows: Sequence[CaseRow]) -> str:
    """What tells the case from the others of these rows; its table's title has the rest."""
    varying = {axis for axis in VARIANT_AXES if len({getattr(row, axis) for row in rows}) > 1}
    return f"{make_label(row, varying)}, {row.precision}, batch size {row.batch_size_text}"
