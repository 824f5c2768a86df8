"""Rows -> latencies that contradict each other, their throughput or their speedups."""

import dataclasses
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Optional

from dlperf_slurm.published.audit.rounding import (
    CONTRADICTION,
    IN_SPREAD,
    LATENCY_AVG,
    LATENCY_OFF,
    ONE,
    OUT_OF_ORDER,
    PRECISION_SPEEDUP,
    TRUNCATED,
    Discrepancy,
    PrintedCell,
    PrintedRow,
    RoundingInterval,
    format_value,
    make_finding,
    measure_gap,
    read_count,
)
from dlperf_slurm.published.grouping import group_by

# Relative error of throughput x latency that our own reports may have, because the total time and
# the times of batches are measured separately. In tables of others every deviation is a finding,
# with the excess above this tolerance.
OUR_TOLERANCE = Fraction(2, 100)
_OURS = RoundingInterval(1 - OUR_TOLERANCE, 1 + OUR_TOLERANCE)

# If the median ratio of a table is larger, its throughput is of other items than the batch or of
# several devices, or its latency is of something else: the table is not checked.
_LARGEST_RATIO = 2.5

# rows with a smaller excess do not count as evidence that the whole table is off
_LEAST_EXCESS = 0.01

_PERCENTILE = re.compile(r"latency_p([0-9.]+)")


@dataclass(frozen=True)
class Product:
    """Throughput x mean latency of one row, which should be the batch size of all devices.

    `samples_x_ms` is that batch size in samples, times 1000 because latencies are in ms.
    """

    row: PrintedRow
    samples: PrintedCell
    latency: PrintedCell
    samples_x_ms: Fraction

    @property
    def ratio(self) -> Fraction:
        """Throughput x mean latency / batch size, from the printed values; 1 if they agree."""
        return self.samples.value * self.latency.value / self.samples_x_ms


def check_latencies(rows: Sequence[PrintedRow]) -> Iterator[Discrepancy]:
    """Yield findings in the latencies of rows.

    Percentiles must ascend, throughput x mean latency be the batch size, a row's speedups agree.
    """
    for row in rows:
        for check in (_check_order, _check_reference_order, _check_speedups):
            finding = check(row)
            if finding is not None:
                yield finding
    tables = group_by(list_products(rows), lambda one: (one.row.file, one.row.table))
    for products in tables.values():
        yield from _check_table(products)


def has_order(row: PrintedRow) -> bool:
    """Return whether a row has at least two latency percentiles, whose order is checked."""
    return len(_list_percentiles(row)) > 1


def list_compared(row: PrintedRow) -> list[PrintedCell]:
    """List the speedups of a row that are compared with each other, because inputs are not printed.

    These are the speedups of throughput and mean latency, and those of two or more percentiles.
    """
    means = [name for name in (PRECISION_SPEEDUP, f"{LATENCY_AVG}_speedup") if name in row.cells]
    tails = [f"{name}_speedup" for name in _list_percentiles(row)]
    tails = [name for name in tails if name in row.cells]
    pairs = (names for names in (means, tails) if len(names) > 1)
    return [row.cells[name] for names in pairs for name in names]


def _list_percentiles(row: PrintedRow) -> list[str]:
    """List the quantities of a row's percentiles, such as "latency_p90", the smallest first."""
    found = [match for match in map(_PERCENTILE.fullmatch, row.cells) if match is not None]
    return [match[0] for match in sorted(found, key=lambda match: float(match[1]))]


def _check_order(row: PrintedRow) -> Optional[Discrepancy]:
    """Return a finding if a percentile of a row is above the next higher one, else None."""
    cells = [row.cells[name] for name in _list_percentiles(row)]
    for low, high in zip(cells, cells[1:]):
        # values that are rounded to the same digit keep their order
        is_above = low.value > high.value
        if is_above and (low.unit == high.unit or low.rounded.low > high.rounded.high):
            reason = f"{low.text} in {low.column}, a lower percentile, is above this value"
            follows = f"{low.text} or more"
            excess = float(low.value / high.value - 1)
            return make_finding(row, high, OUT_OF_ORDER, follows, reason, excess)
    return None


def _check_reference_order(row: PrintedRow) -> Optional[Discrepancy]:
    """Return a finding if the percentiles of the reference precision do not ascend, else None.

    They are not printed, but computed: the row's latency times its latency speedup.
    """
    products: list[tuple[PrintedCell, Fraction, RoundingInterval]] = []
    for name in _list_percentiles(row):
        cell = row.cells.get(name)
        speedup = row.cells.get(f"{name}_speedup")
        if cell is not None and speedup is not None:
            products.append((cell, cell.value * speedup.value, cell.rounded * speedup.rounded))
    for (cell, value, low), (other, other_value, high) in zip(products, products[1:]):
        if low.low > high.high:
            reason = (
                "the latency in the reference precision (latency x speedup) is "
                f"{float(value):.2f} here, but only {float(other_value):.2f} at the higher "
                f"percentile in {other.column} ({other.text})"
            )
            if cell.text == other.text:
                reason += "; both columns have the same value"
            excess = measure_gap(low, high)
            return make_finding(row, cell, OUT_OF_ORDER, "less", reason, excess)
    return None


def list_products(rows: Sequence[PrintedRow]) -> Iterator[Product]:
    """Yield the products throughput x mean latency that are checked against the batch size.

    A latency without a unit is in ms, or in s if this fits its table better. Tables whose median
    `ratio` is far from 1 are left out: their throughput or latency is of something else.
    """
    tables: dict[tuple[str, str], list[Product]] = {}
    for row in rows:
        product = _make_product(row)
        if product is not None:
            tables.setdefault((row.file, row.table), []).append(product)
    for products in tables.values():
        ratio = statistics.median(float(product.ratio) for product in products)
        if not _is_near(ratio) and any(p.latency.scale is None for p in products):
            # the latencies are in seconds, and were taken for milliseconds
            products = [
                dataclasses.replace(p, samples_x_ms=p.samples_x_ms / 1000) for p in products
            ]
            ratio = statistics.median(float(product.ratio) for product in products)
        if _is_near(ratio):
            yield from products


def _is_near(ratio: float) -> bool:
    """Return whether a table's median ratio is near 1, so that its rows are worth checking."""
    return abs(math.log(ratio)) < math.log(_LARGEST_RATIO)


def _make_product(row: PrintedRow) -> Optional[Product]:
    """Return throughput x mean latency of a row.

    None if an input is missing, or for a server under load.
    """
    samples, latency = row.samples_per_s, row.cells.get(LATENCY_AVG)
    batch = _count_samples(row)
    # a server under load has its own queues and batches
    is_loaded = row.concurrency > 0
    if samples is None or latency is None or not batch or has_unknown_devices(row) or is_loaded:
        return None
    return Product(row, samples, latency, Fraction(batch * 1000))


def _check_table(products: Sequence[Product]) -> Iterator[Discrepancy]:
    """Yield a finding for each row of a table whose throughput is not batch size / mean latency.

    If more than half of the rows, and more than two, are far off, only the worst of these is
    yielded: the table's latency is then of something else than its throughput.
    """
    found = [finding for finding in map(_check_throughput, products) if finding is not None]
    off = [f for f in found if f.kind == LATENCY_OFF and (f.excess or 0) >= _LEAST_EXCESS]
    if len(off) <= max(len(products) / 2, 2):
        yield from found
        return
    worst = max(off, key=lambda finding: finding.excess or 0)
    reason = f"{worst.reason}; {len(off)} of the table's {len(products)} rows are inconsistent"
    yield from (finding for finding in found if finding not in off)
    yield dataclasses.replace(worst, reason=reason)


def _check_throughput(product: Product) -> Optional[Discrepancy]:
    """Return a finding if a row's throughput is not batch size / mean latency, else None.

    The batch size is that of all devices. For a median over repeats, the throughputs between the
    slowest and the fastest repeat (`spread`) are allowed.
    """
    row, samples, latency = product.row, product.samples, product.latency
    batch = product.samples_x_ms
    found = _scale((samples.spread or samples.rounded) * latency.rounded, batch)
    # throughput x latency / batch size must be 1, or near it in our own tables
    if found.meets(_OURS if _is_ours(latency) else ONE):
        return None
    tails = [row.cells[name] for name in _list_percentiles(row)]
    reason = (
        f"{samples.text} x {latency.text} {_name_unit(product)} "
        f"/ {_count_samples(row)} = {float(product.ratio):.4f}"
    )
    follows = format_value(batch / latency.value, samples)
    if tails and latency.rounded.low > tails[-1].rounded.high:
        reason += (
            f"; the mean latency, {latency.text}, is above {tails[-1].text} in {tails[-1].column}"
        )
        excess = measure_gap(found, ONE)
        return make_finding(row, samples, LATENCY_OFF, follows, reason, excess)
    excess = measure_gap(found, _span_latencies(row, latency))
    if _scale(samples.cut * latency.cut, batch).meets(ONE):
        reason += "; the result would be 1 if digits were truncated, not rounded"
        return make_finding(row, samples, TRUNCATED, follows, reason, excess)
    kind = LATENCY_OFF if excess or measure_gap(found, ONE) < _LEAST_EXCESS else IN_SPREAD
    return make_finding(row, samples, kind, follows, reason, excess)


def _span_latencies(row: PrintedRow, latency: PrintedCell) -> RoundingInterval:
    """Return the ratios throughput x latency / batch size that a row's percentiles allow.

    The throughput may be a mean of rates instead of latencies, or of other batches than `latency`,
    the mean: then the ratio may be off by as much as single latencies are off their mean.
    """
    values = [latency.value, *(row.cells[name].value for name in _list_percentiles(row))]
    highest = max(values)
    # latencies may lie as far below the smallest printed one as the largest lies above it
    lowest = max(2 * min(values) - highest, Fraction(0))
    # a longer latency means a smaller throughput
    low = min(_OURS.low, latency.value / highest)
    return RoundingInterval(
        low, max(_OURS.high, latency.value / lowest) if lowest else Fraction(10**9)
    )


def _count_samples(row: PrintedRow) -> int:
    """Return the batch size times the device count (1 if unknown); 0 if no size is printed."""
    return read_count(row.batch_size) * max(row.devices, 1)


def _name_unit(product: Product) -> str:
    """Return the unit that a product's latency is taken to be in: "s" or "ms"."""
    is_seconds = product.latency.scale == 1000
    return "s" if is_seconds or product.samples_x_ms == _count_samples(product.row) else "ms"


def has_unknown_devices(row: PrintedRow) -> bool:
    """Return whether a row's device count is unknown: in this project's latency tables.

    These have it only in the heading; in other tables, a row without a count is of one device.
    """
    latency = row.cells.get(LATENCY_AVG)
    return not row.devices and latency is not None and _is_ours(latency)


def _is_ours(latency: PrintedCell) -> bool:
    """Return whether a mean latency was printed by this project's reports."""
    return latency.is_exact or latency.column == "avg ms"


def _scale(product: RoundingInterval, batch: Fraction) -> RoundingInterval:
    """Divide an interval of throughput x latency by `batch`, in samples x ms per s."""
    return RoundingInterval(product.low / batch, product.high / batch)


def _check_speedups(row: PrintedRow) -> Optional[Discrepancy]:
    """Return a finding if a row's speedups of throughput and mean latency differ, else None.

    Both are over the same reference precision. Medians over repeats are not checked: the two need
    not be of the same repeat.
    """
    speedup, of_latency = row.cells.get(PRECISION_SPEEDUP), row.cells.get("latency_avg_speedup")
    samples = row.samples_per_s
    is_median = samples is not None and samples.spread is not None
    if speedup is None or of_latency is None or speedup.is_exact or is_median:
        return None
    if speedup.rounded.meets(of_latency.rounded):
        return None
    reason = f"{of_latency.column} is {of_latency.text} for the same batches"
    excess = measure_gap(speedup.rounded, of_latency.rounded)
    return make_finding(row, speedup, CONTRADICTION, of_latency.text, reason, excess)
