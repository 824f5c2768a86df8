"""An audit -> its findings that matter, the worst first, and a summary by kind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from dlperf_slurm.published.audit.printed import Finding, NotAudited


@dataclass(frozen=True)
class KindSummary:
    """How many findings of a kind there are: those that matter, the largest, and those below.

    `largest` is None where none of them has a measure.
    """

    kind: str
    findings: int
    largest: Optional[float]
    below_threshold: int


@dataclass(frozen=True)
class GapSummary:
    """How many tables, columns and cells of a file nothing was recomputed of, for one reason."""

    file: str
    line: int
    what: str
    count: int
    reason: str


def is_material(finding: Finding, threshold: float) -> bool:
    """Whether a finding is off by the threshold or more, or by no measure at all."""
    return finding.excess is None or finding.excess >= threshold


def choose_material(findings: Sequence[Finding], threshold: float) -> list[Finding]:
    """The findings that matter, those without a measure first and then the worst."""
    chosen = [finding for finding in findings if is_material(finding, threshold)]
    return sorted(chosen, key=lambda finding: -_read_excess(finding))


def _read_excess(finding: Finding) -> float:
    return math.inf if finding.excess is None else finding.excess


def summarize_kinds(findings: Sequence[Finding], threshold: float) -> list[KindSummary]:
    """One line for each kind of finding, that with the most that matter first."""
    summaries = []
    for kind in dict.fromkeys(finding.kind for finding in findings):
        group = [finding for finding in findings if finding.kind == kind]
        material = choose_material(group, threshold)
        measured = [finding.excess for finding in material if finding.excess is not None]
        summaries.append(
            KindSummary(
                kind, len(material), max(measured, default=None), len(group) - len(material)
            )
        )
    return sorted(summaries, key=lambda summary: -summary.findings)


def summarize_gaps(gaps: Sequence[NotAudited]) -> list[GapSummary]:
    """One line for each file and reason, with the first place and how many there are."""
    groups: dict[tuple[str, str], list[NotAudited]] = {}
    for gap in gaps:
        # a reason that names its own line is one of a table's
        reason = gap.reason.partition(": ")[2] if gap.reason.startswith("line ") else gap.reason
        groups.setdefault((gap.file, reason), []).append(gap)
    return [
        GapSummary(file, group[0].line, group[0].what, len(group), reason)
        for (file, reason), group in groups.items()
    ]
