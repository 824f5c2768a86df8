"""The outcome of a repeat -> the phases of its job, from submission to the measured steps."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Optional

from dlperf_slurm.contract.phases import MEANINGS, RANKS, TO_FIRST_STEP
from dlperf_slurm.contract.times import parse_time
from dlperf_slurm.results.collect import Outcome

QUEUE = "queue"
QUEUE_MEANING = (
    "from submission to the start of the job script or array task, by the clocks of two "
    "hosts, in whole seconds"
)
# the phases before the start time in the record
_BEFORE_RECORD = tuple(MEANINGS)[: tuple(MEANINGS).index(RANKS) + 1]


@dataclass(frozen=True)
class StartupPhases:
    """The phases of a repeat's job before the measured steps, in seconds by name and in order.

    The first is QUEUE; phases of unknown length are missing. `to_first_step_seconds` is from the
    start of the job script to the end of the first step.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    to_first_step_seconds: Optional[float] = None


def compute_startup_phases(outcome: Outcome) -> StartupPhases:
    """Compute the phases of a repeat's job before the measured steps; empty if unknown.

    They are unknown for failed repeats and imported logs.
    """
    record, noise = outcome.record, outcome.sidecars.noise
    if record is None or noise is None or not noise.phases:
        return StartupPhases()
    phases = {phase.name: phase.seconds for phase in noise.phases}
    before = sum(phases.get(name, 0.0) for name in _BEFORE_RECORD)
    known = {name: phases[name] for name in MEANINGS if name in phases}
    with suppress(ValueError):  # no submission time
        waited = parse_time(record.started_at) - parse_time(outcome.submitted_at)
        known = {QUEUE: max(0.0, waited.total_seconds() - before), **known}
    return StartupPhases(known, sum(phases.get(name, 0.0) for name in TO_FIRST_STEP))
