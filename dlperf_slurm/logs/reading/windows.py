"""Printed times and rates of a rank -> the window that throughput is computed from."""

from dataclasses import dataclass
from typing import Iterable, Tuple


@dataclass(frozen=True)
class Window:
    """The steps that a rank timed when it was warm; rank -1 is the job as a whole.

    The log tells either `seconds`, or a rate: then `samples_per_s` is their harmonic mean, weighted
    by steps, of the job or of one device. `step_seconds` are times of the single steps, if told.
    """

    rank: int
    steps: int
    seconds: float = 0.0
    samples_per_s: float = 0.0
    is_per_device: bool = False
    step_seconds: Tuple[float, ...] = ()


def make_rate_window(
    rank: int, rates: Iterable[Tuple[int, float]], is_per_device: bool = False
) -> Window:
    """A window of printed rates (steps, samples/s): all samples over all time, never their mean.

    Without rates, or with one of 0, its rate is 0 and says nothing.
    """
    taken = list(rates)
    steps = sum(count for count, _ in taken)
    if min((rate for _, rate in taken), default=0.0) <= 0:
        return Window(rank=rank, steps=steps, is_per_device=is_per_device)
    seconds = sum(count / rate for count, rate in taken)
    return Window(
        rank=rank, steps=steps, samples_per_s=steps / seconds, is_per_device=is_per_device
    )
