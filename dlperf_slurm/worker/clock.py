"""Step boundaries by the host's clock, or by events of the device where a framework has them."""

from array import array
from itertools import takewhile
from time import perf_counter
from typing import Any, List, Sequence


class HostClock:
    """Reads time.perf_counter, which is monotonic, into a preallocated array.

    For devices whose step returns when it is done.
    """

    name = "host"

    def __init__(self, boundaries: int) -> None:
        self._seconds = array("d", bytes(8 * boundaries))

    def mark(self, index: int) -> None:
        self._seconds[index] = perf_counter()

    def read_step_seconds(self) -> List[float]:
        return [end - start for start, end in zip(self._seconds, self._seconds[1:])]

    def read_ended_seconds(self, steps: int) -> List[float]:
        return self.read_step_seconds()[:steps]


class EventClock:
    """Boundaries in the device's own time line; a mark queues an event and does not wait.

    `record` takes `arguments` beside the event itself.
    """

    name = "cuda_event"

    def __init__(self, events: Sequence[Any], *arguments: Any) -> None:
        self._events = events
        self._arguments = arguments

    def mark(self, index: int) -> None:
        self._events[index].record(*self._arguments)

    def read_step_seconds(self) -> List[float]:
        """Resolution is about 0.5 microseconds (CUDA, cudaEventElapsedTime, in milliseconds)."""
        return self._read_seconds(self._events)

    def read_ended_seconds(self, steps: int) -> List[float]:
        marked = self._events[: steps + 1]
        return self._read_seconds(list(takewhile(lambda event: event.query(), marked)))

    def _read_seconds(self, events: Sequence[Any]) -> List[float]:
        return [start.elapsed_time(end) / 1000.0 for start, end in zip(events, events[1:])]
