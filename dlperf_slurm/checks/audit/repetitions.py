"""Rows that repeat each other -> those that disagree: duplicates, and medians of repeats."""

import statistics
from collections.abc import Iterator, Sequence

from dlperf_slurm.checks.audit.derived import index_rows, name_place
from dlperf_slurm.checks.audit.printed import (
    DUPLICATE,
    STALE,
    Cell,
    Finding,
    Row,
    format_value,
    make_finding,
)

# of fewer a median says little
MIN_REPEATS = 3


def check_duplicates(rows: Sequence[Row]) -> Iterator[Finding]:
    """Figures of one configuration that differ, in one table or between files.

    Between files only where each has a single figure of it: else it has a variant that its words
    do not tell apart; and not where a third file agrees.
    """
    for group in index_rows([row for row in rows if not row.repeat]).values():
        for position, row in enumerate(group):
            inside = [other for other in group if _name_series(other) == _name_series(row)]
            if inside[0] is not row:
                yield from _compare(row, inside[0])
            alike = [other for other in group if _is_same_topology(row, other)]
            yield from _compare_files(row, group[:position], alike)


def _compare_files(row: Row, earlier: Sequence[Row], group: Sequence[Row]) -> Iterator[Finding]:
    """Of two files that differ the later one is named, of more the one that is alone."""
    peers = [other for other in group if other is not row and is_same_software(row, other)]
    # "OneFlow" may be either of "OneFlow 0.2.0" and "OneFlow 0.3.1"
    meant = [o for o in group if any(is_same_software(o, other) for other in (row, *peers))]
    is_single = len({other.file for other in meant}) == len(meant)
    if not row.model or not peers or not is_single or any(_agree(row, other) for other in peers):
        return
    if len(peers) > 1 or peers[0] in earlier:
        yield from _compare(row, peers[0])


def _name_series(row: Row) -> tuple[str, ...]:
    return (row.file, row.table, row.software, row.topology, row.note, row.remark)


def is_same_software(row: Row, other: Row) -> bool:
    """Whether one's words begin with the other's: "NGC MXNet" and "NGC MXNet 1.6.0 (...)"."""
    words, others = (text.partition(" (")[0].split() for text in (row.software, other.software))
    shared = min(len(words), len(others))
    return words[:shared] == others[:shared]


def _is_same_topology(row: Row, other: Row) -> bool:
    """Of as many devices: 1n8g is not 2n4g, but either may be 8 devices without more words."""
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
    """A figure that is not the median of the repeats that its own document lists.

    Only where the document has one figure and one set of repeats of the configuration.
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
