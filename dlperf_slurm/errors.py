"""The errors that a user sees, one class per kind of action that the user must take.

Exit code 9, of a Python that is too old or lacks a library, is in installation.py, which such a
Python can read.
"""

from collections.abc import Sequence
from typing import NamedTuple, Optional

# problems that are listed one by one
MAX_SHOWN = 200


class DlperfError(Exception):
    """Something the user must act on; `main` prints it without a traceback."""

    exit_code = 1


class UnsoundError(DlperfError):
    """Something between a matrix and its ranks to mend; nothing of it was submitted."""


class InputError(DlperfError):
    """A file, key or argument to correct; nothing was written."""

    exit_code = 2


class SchedulerError(DlperfError):
    """The scheduler refused or did not answer; what was submitted stays in the journal."""

    exit_code = 3


class JournalError(SchedulerError):
    """The journal of a run cannot be written: a full, read-only or missing disk to mend."""


class EnvironmentMissingError(DlperfError):
    """A framework's environment to create or to name in the site file."""

    exit_code = 4


class CasesFailedError(DlperfError):
    """The run came to its end, and some of its cases failed or are missing."""

    exit_code = 5


class SlowerError(DlperfError):
    """A case became slower than `compare --fail-if-slower` allows; nothing is broken."""

    exit_code = 6


class UndecidedError(DlperfError):
    """What `--fail-if-slower` allows was neither kept nor passed beyond chance: repeat more."""

    exit_code = 7


class UnhealthyNodesError(DlperfError):
    """Nodes to mend or to leave out: what is missing of a run is so because they were not fit."""

    exit_code = 8


# no dataclass: every command loads this module, and `dataclasses` takes a third of --help
class Problem(NamedTuple):
    """One mistake in a user's file: where it is, and what is allowed there."""

    file: str
    line: Optional[int]
    key: str
    message: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one InputError that lists the problems, in the order of the file, if there are any."""
    if problems:
        ordered = sorted(problems, key=lambda problem: (problem.file, problem.line or 0))
        lines = [*dict.fromkeys(map(str, ordered))]
        rest = len(lines) - MAX_SHOWN
        raise InputError("\n".join(lines[:MAX_SHOWN] + [f"... and {rest} more"] * (rest > 0)))
