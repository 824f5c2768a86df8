"""Step boundaries, taken by the host's clock, by device events or by completion of results.

The time of a step is that between two boundaries; a mark is the taking of one. With a device that a
step does not wait for, the host runs one step ahead in every framework: it enqueues a step while
the previous one runs, and not before the one before that has ended.
"""

from array import array
from itertools import takewhile
from queue import SimpleQueue
from threading import Semaphore, Thread
from time import perf_counter
from typing import Any, Callable, List, Optional, Sequence


class HostClock:
    """Takes the times of step boundaries by time.perf_counter, which is monotonic.

    For devices whose step function returns only when the step has ended.
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
    """Takes step boundaries as device events: `mark` records one and waits for the previous one.

    `arguments` are passed to `record` besides the event.
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
        """Return step times in seconds; cudaEventElapsedTime resolves about 0.5 microseconds."""
        return self._read_seconds(self._events)

    def read_ended_seconds(self, steps: int) -> List[float]:
        marked = self._events[: steps + 1]
        return self._read_seconds(list(takewhile(lambda event: event.query(), marked)))

    def _read_seconds(self, events: Sequence[Any]) -> List[float]:
        return [start.elapsed_time(end) / 1000.0 for start, end in zip(events, events[1:])]


class CompletionClock:
    """Takes step boundaries when each step's result becomes available, in step order.

    For frameworks with asynchronous steps and no device events. A thread waits for each result
    (`wait_for`) and then reads the host's clock, so that the end of a step is not recorded late
    because the host is busy enqueueing the next step. `take_result`, called after each step,
    returns something that becomes available only when the step has ended. Boundary 0 is at a
    synchronization; the last `mark` waits for its step, so that the steps fill the time between
    these two.

    `is_order_of_requests` is for a framework whose wait covers all work enqueued before the wait
    began: `mark` then returns only after the wait has begun.
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
        # a daemon thread, because a failed rank exits without waiting for its device
        Thread(target=self._take_ends, daemon=True).start()

    def mark(self, index: int) -> None:
        """Note that step `index` was issued (0: the start); a thread takes the time of its end.

        Waits for the end of the step before it, and at the last boundary for its own. Raises the
        error of a step that failed.
        """
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
                    # the interpreter lock is held from here until the wait has begun
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


# clock of external scripts, which print their own times
LOG = "log"
# allowed names of a record's clock
CLOCKS = (HostClock.name, EventClock.name, CompletionClock.name, LOG)
