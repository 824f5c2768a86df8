"""The errors that a user sees, one class per kind of action that the user must take.

Exit code 9, for a Python that is too old or lacks a library, is in installation.py, which old
Pythons can parse.
"""

from collections.abc import Sequence
from typing import NamedTuple, Optional

# maximum number of problems in a message
MAX_SHOWN = 200


class DlperfError(Exception):
    """An error that the user must act on; `main` prints it without a traceback."""

    exit_code = 1


class SiteCheckError(DlperfError):
    """`doctor` found a problem on the site, or could not finish a check; no benchmark ran."""


class InputError(DlperfError):
    """A file, key or argument is invalid; nothing was written."""

    exit_code = 2


class SchedulerError(DlperfError):
    """The scheduler refused a request or did not answer; submitted jobs stay in the journal."""

    exit_code = 3


class JournalError(SchedulerError):
    """The journal of a run cannot be written, such as on a full or read-only disk."""


class EnvironmentMissingError(DlperfError):
    """A framework's environment is missing: create it, or name it in the site file."""

    exit_code = 4


class CasesFailedError(DlperfError):
    """The run has ended, and some of its cases failed or are missing."""

    exit_code = 5


class SlowerError(DlperfError):
    """A case is slower than `--fail-if-slower` allows, or `accept` rejects it."""

    exit_code = 6


class InconclusiveError(DlperfError):
    """More repeats are needed for `--fail-if-slower` or `accept`: no answer is significant yet."""

    exit_code = 7


class BadNodesError(DlperfError):
    """A sweep found nodes that are slow, or on which a repeat failed."""

    exit_code = 10


class UnhealthyNodesError(DlperfError):
    """All missing results of a run are due to UNHEALTHY nodes: repair or exclude these nodes."""

    exit_code = 8


# not a dataclass: every command loads this module, and importing `dataclasses` is slow
class Problem(NamedTuple):
    """A mistake in a user's file: its place, and a message with the allowed values."""

    file: str
    line: Optional[int]
    key: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one InputError that lists the problems by file and line; return if there are none."""
    if problems:
        ordered = sorted(problems, key=lambda problem: (problem.file, problem.line or 0))
        lines = [*dict.fromkeys(map(str, ordered))]
        rest = len(lines) - MAX_SHOWN
        raise InputError("\n".join(lines[:MAX_SHOWN] + [f"... and {rest} more"] * (rest > 0)))
