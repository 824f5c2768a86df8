"""Step boundaries: by the host's clock, by events of the device, or by when results are there.

The host runs one step ahead of a device that a step does not wait for, in every framework: it gives
out a step while the one before it runs, and none before the one before that has ended.
"""

from array import array
from itertools import takewhile
from queue import SimpleQueue
from threading import Semaphore, Thread
from time import perf_counter
from typing import Any, Callable, List, Optional, Sequence


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
    """Boundaries in the device's own time line; a mark queues an event, and waits for the last one.

    `record` takes `arguments` beside the event itself.
    """

    name = "cuda_event"

    def __init__(self, events: Sequence[Any], *arguments: Any) -> None:
        self._events = events
        self._arguments = arguments

    def mark(self, index: int) -> None:
        self._events[index].record(*self._arguments)
        if index > 0:
            self._events[index - 1].synchronize()

    def read_step_seconds(self) -> List[float]:
        """Resolution is about 0.5 microseconds (CUDA, cudaEventElapsedTime, in milliseconds)."""
        return self._read_seconds(self._events)

    def read_ended_seconds(self, steps: int) -> List[float]:
        marked = self._events[: steps + 1]
        return self._read_seconds(list(takewhile(lambda event: event.query(), marked)))

    def _read_seconds(self, events: Sequence[Any]) -> List[float]:
        return [start.elapsed_time(end) / 1000.0 for start, end in zip(events, events[1:])]


class CompletionClock:
    """Boundaries by when each step's result is there, in the order of steps.

    For frameworks whose steps run on while the host does, and that have no events of the device. A
    thread waits for each result (`wait_for`) and looks at the host's clock when it is there, so
    that a step's end is not put off to when the host has given out the next one. `take_result` is
    called behind each step, for something that is not there before the step has ended. Mark 0 is
    at a fence; the last mark waits for its step, so that the steps fill the time between the two.

    With `is_order_of_requests` a wait is for all that the device was given before it is asked for:
    a mark then returns no sooner than that.
    """

    name = "completion"

    def __init__(
        self,
        boundaries: int,
        take_result: Callable[[], Any],
        wait_for: Callable[[Any], Any],
        is_order_of_requests: bool = False,
    ) -> None:
        self._seconds = array("d", bytes(8 * boundaries))
        self._ended = 0
        self._take_result = take_result
        self._wait_for = wait_for
        self._results: "SimpleQueue[Any]" = SimpleQueue()
        self._requests = Semaphore(0) if is_order_of_requests else None
        self._ends = Semaphore(0)
        self._error: Optional[BaseException] = None
        # a daemon, as a failed rank leaves without waiting for its device
        Thread(target=self._take_ends, daemon=True).start()

    def mark(self, index: int) -> None:
        """Raises what the wait for a step before raised."""
        if index == 0:
            self._seconds[0] = perf_counter()
            return
        self._results.put(self._take_result())
        if self._requests is not None:
            self._requests.acquire()
        if index > 1:
            self._await_end()
        if index == len(self._seconds) - 1:
            self._await_end()

    def _await_end(self) -> None:
        self._ends.acquire()
        if self._error is not None:
            raise self._error

    def _take_ends(self) -> None:
        try:
            for index in range(1, len(self._seconds)):
                result = self._results.get()
                if self._requests is not None:
                    # the interpreter's lock is kept from here to within the wait
                    self._requests.release()
                self._wait_for(result)
                self._seconds[index] = perf_counter()
                self._ended = index
                self._ends.release()
        except BaseException as error:
            self._error = error
            self._ends.release()

    def read_step_seconds(self) -> List[float]:
        return [end - start for start, end in zip(self._seconds, self._seconds[1:])]

    def read_ended_seconds(self, steps: int) -> List[float]:
        return self.read_step_seconds()[: min(steps, self._ended)]


# of scripts without an adapter, which print their own times
LOG = "log"
# what records have as the name of their clock
CLOCKS = (HostClock.name, EventClock.name, CompletionClock.name, LOG)
