"""Lines of a log -> a limit on the CPU time in which a user's patterns match them.

Python's `re` handles signals while it matches, so that a timer can end a match that backtracks
exponentially. Lines of an honest log are matched far faster than SLOWEST_CHARACTERS_PER_S.
"""

import signal
import threading
from contextlib import contextmanager
from typing import Any, Iterable, Iterator, Mapping, Optional, Pattern

from dlperf_slurm.logs.lines import LogLine

# a line counts as at least this many characters
_LINE_CHARACTERS = 1000
SLOWEST_CHARACTERS_PER_S = 1_000_000
# CPU seconds per log for which matching may be slower than that
MOST_SLOW_SECONDS = 3


class SlowMatchError(Exception):
    """Matching the lines of a log takes too long; not a ValueError, which handlers catch."""


class MatchClock:
    """The progress of matching lines; `line` is the one that is matched now, or None."""

    def __init__(self) -> None:
        self.line: Optional[str] = None
        self._characters = 0
        self._slow_seconds = 0

    def watch(self, lines: Iterable[LogLine]) -> Iterator[LogLine]:
        """Yield the lines, and note their number and length, which limit the time to match them."""
        for line in lines:
            self.line = line.text
            self._characters += _LINE_CHARACTERS + len(line.text)
            yield line
        self.line = None

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Raise SlowMatchError as soon as matching takes too long, if in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = signal.signal(signal.SIGVTALRM, self._check)
        signal.setitimer(signal.ITIMER_VIRTUAL, 1, 1)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, previous)

    def _check(self, number: int, frame: Any) -> None:
        is_slow = self.line is not None and self._characters < SLOWEST_CHARACTERS_PER_S
        self._slow_seconds += is_slow
        self._characters = 0
        if self._slow_seconds >= MOST_SLOW_SECONDS:
            raise SlowMatchError


def find_slow_pattern(patterns: Mapping[str, Pattern[str]], text: str) -> str:
    """Return the key, in `patterns`, of the first one that takes too long for a text, or ''."""
    for key, pattern in patterns.items():
        clock = MatchClock()
        clock.line = text
        try:
            with clock.limited():
                pattern.match(text)
        except SlowMatchError:
            return key
    return ""
