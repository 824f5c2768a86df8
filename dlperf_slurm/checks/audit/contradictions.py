"""Rows -> figures that contradict each other: latencies, duplicates, medians of repeats."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Optional

from dlperf_slurm.checks.audit.printed import (
    CONTRADICTION,
    DUPLICATE,
    LATENCY_OFF,
    ONE,
    OUT_OF_ORDER,
    PRECISION_SPEEDUP,
    STALE,
    TRUNCATED,
    Cell,
    Finding,
    Row,
    Span,
    format_value,
    make_finding,
    read_count,
)
from dlperf_slurm.checks.audit.speedups import index_rows, name_place
from dlperf_slurm.stats.median import LATENCY_NAMES

PERCENTILES = LATENCY_NAMES[1:]

# Throughput x latency may be off by so much, as a ratio, in our own reports: the clock's marks lie
# between the sum of the batches and their window.
OUR_TOLERANCE = Fraction(2, 100)

# the least number of repeats whose median is checked; one of fewer says little
MIN_REPEATS = 3

# the key that the figures of one table's series share
_name_series: Callable[[Row], tuple[str, ...]] = attrgetter(
    "file", "table", "software", "topology", "note", "remark"
)


def check_latencies(rows: Sequence[Row]) -> Iterator[Finding]:
    """The findings in the latencies of rows, at most one per row and kind."""
    for row in rows:
        for check in (_check_order, _check_reference_order, _check_throughput, _check_speedups):
            finding = check(row)
            if finding is not None:
                yield finding


def _check_order(row: Row) -> Optional[Finding]:
    cells = [row.cells[f"latency_{name}"] for name in PERCENTILES if f"latency_{name}" in row.cells]
    for low, high in zip(cells, cells[1:]):
        if low.value > high.value:
            reason = f"{low.text} in {low.column} is above it"
            return make_finding(row, high, OUT_OF_ORDER, f"{low.text} or more", reason)
    return None


def _check_reference_order(row: Row) -> Optional[Finding]:
    """The finding of a reference's latencies, latency x speedup, that are out of their order."""
    products: list[tuple[Cell, Fraction, Span]] = []
    for name in PERCENTILES:
        cell = row.cells.get(f"latency_{name}")
        speedup = row.cells.get(f"latency_{name}_speedup")
        if cell is not None and speedup is not None:
            products.append((cell, cell.value * speedup.value, cell.rounded * speedup.rounded))
    for (cell, value, low), (other, other_value, high) in zip(products, products[1:]):
        if low.low > high.high:
            reason = (
                f"with its speedup the reference's is {float(value):.2f}, above the "
                f"{float(other_value):.2f} of {other.text} in {other.column}"
            )
            if cell.text == other.text:
                reason += "; both columns have the same value"
            return make_finding(row, cell, OUT_OF_ORDER, "less", reason)
    return None


def _check_throughput(row: Row) -> Optional[Finding]:
    """The finding of a throughput that is not the batch of all devices over the mean latency.

    For medians over repeats it is enough that some throughput among the repeats fits.
    """
    if has_unknown_devices(row):
        return None
    samples, latency = row.samples_per_s, row.cells.get("latency_avg")
    batch = Fraction(read_count(row.batch_size) * max(row.devices, 1) * 1000)
    if samples is None or latency is None or not batch:
        return None
    if _scale((samples.spread or samples.rounded) * latency.rounded, batch).meets(_allow(latency)):
        return None
    ratio = float(samples.value * latency.value / batch)
    reason = f"{samples.text} x {latency.text} ms / {int(batch / 1000)} = {ratio:.4f}"
    follows = format_value(batch / latency.value, samples)
    if _scale(samples.cut * latency.cut, batch).meets(ONE):
        reason += ", and 1 only if digits were cut, not rounded"
        return make_finding(row, samples, TRUNCATED, follows, reason)
    return make_finding(row, samples, LATENCY_OFF, follows, reason)


def has_unknown_devices(row: Row) -> bool:
    """Whether the number of devices stands in the heading alone, as over our latency tables.

    A row of others' tables that does not say it is of one device.
    """
    latency = row.cells.get("latency_avg")
    return not row.devices and latency is not None and _is_ours(latency)


def _is_ours(latency: Cell) -> bool:
    return latency.is_exact or latency.column == "avg ms"


def _allow(latency: Cell) -> Span:
    return Span(1 - OUR_TOLERANCE, 1 + OUR_TOLERANCE) if _is_ours(latency) else ONE


def _scale(product: Span, batch: Fraction) -> Span:
    return Span(product.low / batch, product.high / batch)


def _check_speedups(row: Row) -> Optional[Finding]:
    """The finding of a throughput whose speedup is not that of the latency at one batch size.

    Medians over repeats are not checked: those of both need not be of the same repeat.
    """
    speedup, of_latency = row.cells.get(PRECISION_SPEEDUP), row.cells.get("latency_avg_speedup")
    samples = row.samples_per_s
    is_median = samples is not None and samples.spread is not None
    if speedup is None or of_latency is None or speedup.is_exact or is_median:
        return None
    if speedup.rounded.meets(of_latency.rounded):
        return None
    reason = f"{of_latency.column} says {of_latency.text}, of the same batches"
    return make_finding(row, speedup, CONTRADICTION, of_latency.text, reason)


def check_duplicates(rows: Sequence[Row]) -> Iterator[Finding]:
    """The figures of one configuration that differ, in one table or between files.

    Files are compared only where each has a single figure of it, as several are variants that its
    words do not tell apart; and not where a third file agrees.
    """
    for group in index_rows([row for row in rows if not row.repeat]).values():
        for position, row in enumerate(group):
            inside = [other for other in group if _name_series(other) == _name_series(row)]
            if inside[0] is not row:
                yield from _compare(row, inside[0])
            alike = [other for other in group if _is_same_topology(row, other)]
            yield from _compare_files(row, group[:position], alike)


def _compare_files(row: Row, earlier: Sequence[Row], group: Sequence[Row]) -> Iterator[Finding]:
    """The finding for a row that differs from other files.

    The later of two files is named, and of more the one that is alone.
    """
    peers = [other for other in group if other is not row and is_same_software(row, other)]
    # "OneFlow" may be either of "OneFlow 0.2.0" and "OneFlow 0.3.1"
    meant = [o for o in group if any(is_same_software(o, other) for other in (row, *peers))]
    is_single = len({other.file for other in meant}) == len(meant)
    if not row.model or not peers or not is_single or any(_agree(row, other) for other in peers):
        return
    if len(peers) > 1 or peers[0] in earlier:
        yield from _compare(row, peers[0])


def is_same_software(row: Row, other: Row) -> bool:
    """Whether one's words begin with the other's: "NGC MXNet" and "NGC MXNet 1.6.0 (...)"."""
    words, others = (text.partition(" (")[0].split() for text in (row.software, other.software))
    shared = min(len(words), len(others))
    return words[:shared] == others[:shared]


def _is_same_topology(row: Row, other: Row) -> bool:
    """Whether rows of as many devices may have one topology.

    1n8g is not 2n4g, but either may be 8 devices without more words.
    """
    return row.topology == other.topology or not (row.topology and other.topology)


def _agree(row: Row, other: Row) -> bool:
    ours, theirs = row.samples_per_s, other.samples_per_s
    return ours is None or theirs is None or ours.rounded.meets(theirs.rounded)


def _compare(row: Row, other: Row) -> Iterator[Finding]:
    ours, theirs = row.samples_per_s, other.samples_per_s
    if ours is not None and theirs is not None and not _agree(row, other):
        reason = f"is {theirs.text} at {name_place(other)}"
        yield make_finding(row, ours, DUPLICATE, theirs.text, reason)


def check_medians(rows: Sequence[Row]) -> Iterator[Finding]:
    """The figures that are not the median of the repeats that their own document lists.

    They are checked where the document has one figure and one set of repeats of the configuration.
    """
    for group in index_rows(rows).values():
        for document in dict.fromkeys(_name_document(row) for row in group):
            inside = [row for row in group if _name_document(row) == document]
            figures = [row for row in inside if not row.repeat]
            repeats = [row for row in inside if row.repeat]
            is_one_set = len({row.repeat for row in repeats}) == len(repeats)
            if len(figures) == 1 and len(repeats) >= MIN_REPEATS and is_one_set:
                yield from _check_median(figures[0], repeats)


def _name_document(row: Row) -> str:
    return row.where.rpartition(":")[0] if row.where else row.file


def _check_median(row: Row, repeats: Sequence[Row]) -> Iterator[Finding]:
    cells: list[Cell] = [r.samples_per_s for r in repeats if r.samples_per_s is not None]
    cell = row.samples_per_s
    median = statistics.median(c.value for c in cells)
    if cell is None or abs(cell.value - median) <= cell.unit / 2 + max(c.unit for c in cells) / 2:
        return
    texts = ", ".join(c.text for c in sorted(cells, key=lambda c: c.value))
    reason = f"the median of the {len(cells)} repeats that the document lists: {texts}"
    yield make_finding(row, cell, STALE, format_value(median, cell), reason)
