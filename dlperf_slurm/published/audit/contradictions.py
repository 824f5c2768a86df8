"""Rows of tables -> figures printed twice with two values, and figures that are no median."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from dlperf_slurm.published.audit.rounding import (
    DUPLICATE,
    STALE,
    Discrepancy,
    PrintedCell,
    PrintedRow,
    format_value,
    make_finding,
    measure_gap,
)
from dlperf_slurm.published.audit.speedups import format_place, index_rows

# the smallest number of repeats whose median is checked
MIN_REPEATS = 3

# key of the figures in one series of a table
_name_series: Callable[[PrintedRow], tuple[str, ...]] = attrgetter(
    "file", "table", "software", "topology", "note", "remark"
)


def check_duplicates(rows: Sequence[PrintedRow]) -> Iterator[Discrepancy]:
    """Yield a finding for each figure that is also printed with another value for the same case.

    Compares rows of one table, and of different files. Files are compared only if each has a single
    figure of the configuration: several figures are variants that the text does not distinguish. No
    finding if a third file agrees with the row.
    """
    for group in index_rows([row for row in rows if not row.repeat]).values():
        for position, row in enumerate(group):
            inside = [other for other in group if _name_series(other) == _name_series(row)]
            if inside[0] is not row:
                yield from _compare(row, inside[0])
            # 1n8g is not 2n4g, but either may have been printed as "8 devices"
            alike = [o for o in group if o.topology in ("", row.topology) or not row.topology]
            yield from _compare_files(row, group[:position], alike)


def _compare_files(
    row: PrintedRow, earlier: Sequence[PrintedRow], group: Sequence[PrintedRow]
) -> Iterator[Discrepancy]:
    """Yield a finding if a row's throughput differs from that of the same case in other files.

    Of two files the later one is reported, of more files the one that differs from all others.
    `group` are the rows of the same configuration and topology in all files, `earlier` those of the
    configuration that were read before `row`.
    """
    peers = [other for other in group if other is not row and is_same_software(row, other)]
    # "OneFlow" may be either of "OneFlow 0.2.0" and "OneFlow 0.3.1"
    meant = [o for o in group if any(is_same_software(o, other) for other in (row, *peers))]
    is_single = len({other.file for other in meant}) == len(meant)
    if not row.model or not peers or not is_single or any(_agree(row, other) for other in peers):
        return
    if len(peers) > 1 or peers[0] in earlier:
        yield from _compare(row, peers[0])


def is_same_software(row: PrintedRow, other: PrintedRow) -> bool:
    """Return whether one row's software text begins with the other's, compared word by word.

    "NGC MXNet" is the same as "NGC MXNet 1.6.0 (...)".
    """
    words, others = (text.partition(" (")[0].split() for text in (row.software, other.software))
    shared = min(len(words), len(others))
    return words[:shared] == others[:shared]


def _agree(row: PrintedRow, other: PrintedRow) -> bool:
    """Return whether two rows' throughputs may be roundings of one value, or one is missing."""
    ours, theirs = row.samples_per_s, other.samples_per_s
    return ours is None or theirs is None or ours.rounded.meets(theirs.rounded)


def _compare(row: PrintedRow, other: PrintedRow) -> Iterator[Discrepancy]:
    """Yield a finding for `row` if its throughput differs from that of `other` beyond rounding."""
    ours, theirs = row.samples_per_s, other.samples_per_s
    if ours is not None and theirs is not None and not _agree(row, other):
        reason = f"the same configuration has {theirs.text} at {format_place(other)}"
        excess = measure_gap(ours.rounded, theirs.rounded)
        yield make_finding(row, ours, DUPLICATE, theirs.text, reason, excess)


def check_medians(rows: Sequence[PrintedRow]) -> Iterator[Discrepancy]:
    """Yield a finding for each throughput that is not the median of its document's repeats.

    Checks documents that have one throughput and one set of repeats of the configuration.
    """
    for group in index_rows(rows).values():
        for document in dict.fromkeys(_name_document(row) for row in group):
            inside = [row for row in group if _name_document(row) == document]
            figures = [row for row in inside if not row.repeat]
            repeats = [row for row in inside if row.repeat]
            is_one_set = len({row.repeat for row in repeats}) == len(repeats)
            if len(figures) == 1 and len(repeats) >= MIN_REPEATS and is_one_set:
                yield from _check_median(figures[0], repeats)


def _name_document(row: PrintedRow) -> str:
    """Return the document that a row's figure was published in, or else the file of the row."""
    return row.where.rpartition(":")[0] if row.where else row.file


def _check_median(row: PrintedRow, repeats: Sequence[PrintedRow]) -> Iterator[Discrepancy]:
    """Yield a finding if a row's throughput is not the median of the throughputs of `repeats`."""
    cells: list[PrintedCell] = [r.samples_per_s for r in repeats if r.samples_per_s is not None]
    cell = row.samples_per_s
    median = statistics.median(c.value for c in cells)
    if cell is None or abs(cell.value - median) <= cell.unit / 2 + max(c.unit for c in cells) / 2:
        return
    texts = ", ".join(c.text for c in sorted(cells, key=lambda c: c.value))
    reason = f"not the median of the {len(cells)} repeats that the document lists: {texts}"
    excess = abs(float(cell.value / median - 1))
    yield make_finding(row, cell, STALE, format_value(median, cell), reason, excess)
