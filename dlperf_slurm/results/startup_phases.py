"""The outcome of a repeat -> the phases of its job, from submission to the measured steps."""

from contextlib import suppress

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
# from the start of the job script to the end of the first step: the sum of several phases
TO_FIRST_STEP_SUM = "to first step"


def compute_startup_phases(outcome: Outcome) -> dict[str, float]:
    """Return the phases of a repeat's job before the measured steps, in seconds by name.

    The first is QUEUE, the last TO_FIRST_STEP_SUM; phases of unknown length are missing, as all are
    for failed repeats and imported logs.
    """
    record, noise = outcome.record, outcome.sidecars.noise
    if record is None or noise is None or not noise.phases:
        return {}
    phases = {phase.name: phase.seconds for phase in noise.phases}
    before = sum(phases.get(name, 0.0) for name in _BEFORE_RECORD)
    known = {name: phases[name] for name in MEANINGS if name in phases}
    with suppress(ValueError):  # no submission time
        waited = parse_time(record.started_at) - parse_time(outcome.submitted_at)
        known = {QUEUE: max(0.0, waited.total_seconds() - before), **known}
    return {**known, TO_FIRST_STEP_SUM: sum(phases.get(name, 0.0) for name in TO_FIRST_STEP)}
