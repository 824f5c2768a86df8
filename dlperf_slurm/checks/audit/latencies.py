"""Rows of inference -> latencies that contradict each other or the throughput."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Optional

from dlperf_slurm.checks.audit.printed import (
    CONTRADICTION,
    LATENCY_NAMES,
    LATENCY_OFF,
    ONE,
    OUT_OF_ORDER,
    PRECISION_SPEEDUP,
    TRUNCATED,
    Cell,
    Finding,
    Row,
    Span,
    format_value,
    make_finding,
    read_count,
)

PERCENTILES = LATENCY_NAMES[1:]

# in our reports: between the sum of the batches and their window lie the clock's marks
OUR_TOLERANCE = Fraction(2, 100)


def check_latencies(rows: Sequence[Row]) -> Iterator[Finding]:
    """At most one finding per row and kind."""
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
    """The latencies times their speedups are the reference's, which have an order too."""
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
    """Throughput x mean latency is the batch of all devices.

    Of medians over repeats only this follows: some throughput among the repeats fits.
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
    """Whether they stand in the heading, as over our latency tables; others are of one device."""
    latency = row.cells.get("latency_avg")
    return not row.devices and latency is not None and _is_ours(latency)


def _is_ours(latency: Cell) -> bool:
    return latency.is_exact or latency.column == "avg ms"


def _allow(latency: Cell) -> Span:
    return Span(1 - OUR_TOLERANCE, 1 + OUR_TOLERANCE) if _is_ours(latency) else ONE


def _scale(product: Span, batch: Fraction) -> Span:
    return Span(product.low / batch, product.high / batch)


def _check_speedups(row: Row) -> Optional[Finding]:
    """At one batch size the throughput grows as much as the mean latency shrinks.

    Not so the medians over repeats: that of the throughputs need not be of the same repeat.
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
