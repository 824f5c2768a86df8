"""Step boundaries by the host's clock, for devices whose step returns when it is done."""

from array import array
from time import perf_counter
from typing import List


class HostClock:
    """Reads time.perf_counter, which is monotonic, into a preallocated array."""

    name = "host"

    def __init__(self, boundaries: int) -> None:
        self._seconds = array("d", bytes(8 * boundaries))

    def mark(self, index: int) -> None:
        self._seconds[index] = perf_counter()

    def read_step_seconds(self) -> List[float]:
        return [end - start for start, end in zip(self._seconds, self._seconds[1:])]
