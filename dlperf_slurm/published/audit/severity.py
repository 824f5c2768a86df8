"""Findings of an audit -> those large enough to report, the worst first; a summary by kind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.published.audit.rounding import Discrepancy, NotAudited
from dlperf_slurm.published.grouping import group_by


@dataclass(frozen=True)
class KindSummary:
    """How many findings of one kind there are, by whether their excess reaches the threshold.

    `findings` are those that do, with the `largest` excess, None if none of them has one;
    `below_threshold` counts the others.
    """

    kind: str
    findings: int
    largest: Optional[float]
    below_threshold: int


@dataclass(frozen=True)
class GapSummary:
    """Number of tables, columns and cells of a file that were not recomputed for one reason."""

    file: str
    line: int
    what: str
    count: int
    reason: str


def choose_reportable(findings: Sequence[Discrepancy], threshold: float) -> list[Discrepancy]:
    """Return the findings that are large enough to report, sorted from the largest excess.

    Those with an excess (relative deviation beyond rounding; 0.01 is 1 %) below `threshold` are
    left out; those without a measured excess come first.
    """
    excess = [math.inf if finding.excess is None else finding.excess for finding in findings]
    order = sorted(range(len(findings)), key=lambda index: -excess[index])
    return [findings[index] for index in order if excess[index] >= threshold]


def summarize_kinds(findings: Sequence[Discrepancy], threshold: float) -> list[KindSummary]:
    """Return a summary per kind of finding, the kind with the most findings to report first.

    `threshold` is the smallest excess to report, as in `choose_reportable`.
    """
    summaries = []
    for kind in dict.fromkeys(finding.kind for finding in findings):
        group = [finding for finding in findings if finding.kind == kind]
        material = choose_reportable(group, threshold)
        measured = [finding.excess for finding in material if finding.excess is not None]
        summaries.append(
            KindSummary(
                kind, len(material), max(measured, default=None), len(group) - len(material)
            )
        )
    return sorted(summaries, key=lambda summary: -summary.findings)


def summarize_gaps(gaps: Sequence[NotAudited]) -> list[GapSummary]:
    """Return a summary per file and reason why parts were not checked: first part and count."""

    def find_key(gap: NotAudited) -> tuple[str, str]:
        # a reason of a table names its own line, which is removed to group by reason
        is_of_line = gap.reason.startswith("line ")
        return gap.file, gap.reason.partition(": ")[2] if is_of_line else gap.reason

    return [
        GapSummary(file, group[0].line, group[0].what, len(group), reason)
        for (file, reason), group in group_by(gaps, find_key).items()
    ]
