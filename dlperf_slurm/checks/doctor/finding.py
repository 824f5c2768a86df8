"""The result of one check -> a line of output: status, subject, places, message and remedy."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

MAX_PLACES = 4

Status = Literal["ok", "fault", "undecided"]
# who keeps a job from running: sbatch, if it refuses the job; the queue, where the job would be
# PENDING for ever; "" if it would start and fail
Decider = Literal["", "sbatch", "queue"]


@dataclass(frozen=True)
class CheckResult:
    """The result of one check, printed on one line.

    `status` is "ok", "fault" (the user has to fix something) or "undecided" (could not be checked).
    `what` is the subject, such as "time limit"; `places` are the array jobs, frameworks, folders or
    nodes concerned. `decider` says who would keep the job from running: "sbatch" refuses it, or it
    stays in the "queue".
    """

    status: Status
    what: str
    places: tuple[str, ...]
    words: str
    remedy: str = ""
    decider: Decider = ""

    @property
    def is_ok(self) -> bool:
        """Whether the check passed."""
        return self.status == "ok"

    def at(self, place: str) -> "CheckResult":
        """Return the result with the one place that it concerns."""
        return replace(self, places=(place,))

    def __str__(self) -> str:
        shown = ", ".join(self.places[:MAX_PLACES])
        rest = len(self.places) - MAX_PLACES
        where = f"{shown} and {rest} more" if rest > 0 else shown
        parts = [self.what, where, " ".join(self.words.split())]
        line = f"{self.status:<9} " + ": ".join(part for part in parts if part)
        return f"{line}; {self.remedy}" if self.remedy else line


def make_fault(what: str, words: str, remedy: str, decider: Decider = "") -> CheckResult:
    """Return the result of a failed check of the subject `what`, without a place.

    `words` is the message, `remedy` what to do; `decider`, such as "sbatch", is as in CheckResult.
    """
    return CheckResult("fault", what, (), words, remedy, decider)


def merge_places(findings: Iterable[CheckResult]) -> list[CheckResult]:
    """Merge results that differ only in their places into one with all places."""
    merged: dict[CheckResult, tuple[str, ...]] = {}
    for finding in findings:
        key = replace(finding, places=())
        merged[key] = tuple(dict.fromkeys((*merged.get(key, ()), *finding.places)))
    return [replace(key, places=places) for key, places in merged.items()]
