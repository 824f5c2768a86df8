"""Outcomes of cases with figures that a test chooses: rates, telemetry, step times."""

import dataclasses
import math
import random

from builders import make_outcomes, make_planned_case, make_rank
from support.cases import vary

from dlperf_slurm.contract.host_noise import NoiseReport
from dlperf_slurm.contract.phases import FIRST_STEP, LOOK, RANKS, SCRIPT, WARMUP, WINDOW, Phase
from dlperf_slurm.contract.record import Telemetry
from dlperf_slurm.jobs.attempts import Sidecars
from dlperf_slurm.results.collect import CaseOutcomes

RATES = (100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8)
# of a job's start by phase; it was submitted 60 s before its record began, and queued 57 of them
PHASE_SECONDS = {SCRIPT: 1.0, RANKS: 2.0, LOOK: 0.5, FIRST_STEP: 4.0, WARMUP: 8.0, WINDOW: 16.0}


def scale(rates, factor):
    return [factor * rate for rate in rates]


def make_case_outcomes(rates=RATES, number=0, changes=None, **record_changes) -> CaseOutcomes:
    """Make a case with these throughputs; `changes` are made to the case in its records."""
    planned = make_planned_case(case_id=f"case{number}", repeats=len(rates))
    return change_records(make_outcomes(planned, rates, **record_changes), **(changes or {}))


def make_started_case(*starts, submitted_at="2026-01-01T00:00:00Z", **changes) -> CaseOutcomes:
    """Make a case with one repeat for each of these seconds by phase; None has no phases."""
    case = make_outcomes(make_planned_case(repeats=len(starts), **changes), [100.0] * len(starts))
    outcomes = []
    for outcome, seconds in zip(case.outcomes, starts):
        phases = tuple(Phase(name, value) for name, value in (seconds or {}).items())
        sidecars = Sidecars(NoiseReport("run", outcome.case_id, outcome.repeat, 1, (), phases))
        record = dataclasses.replace(outcome.record, started_at="2026-01-01T00:01:00Z")
        outcomes.append(
            dataclasses.replace(
                outcome, record=record, sidecars=sidecars, submitted_at=submitted_at
            )
        )
    return CaseOutcomes(case.case, tuple(outcomes))


def change_records(outcomes, **changes) -> CaseOutcomes:
    """Change the case in records but keep the throughputs, so that the windows change."""

    def change(record):
        case = vary(record.case, **changes)
        samples = case.global_batch_size * case.measured_steps
        ranks = tuple(make_rank(r.rank, window_seconds=samples / record.samples_per_s)
                      for r in record.ranks)  # fmt: skip
        return dataclasses.replace(record, case=case, ranks=ranks if changes else record.ranks)

    return CaseOutcomes(
        outcomes.case,
        tuple(dataclasses.replace(o, record=change(o.record)) for o in outcomes.outcomes),
    )


def make_telemetry(device=0, host="node1", **changes) -> Telemetry:
    one = Telemetry(
        host=host,
        device=device,
        name="GPU",
        samples=9,
        interval_seconds=0.5,
        cpu_seconds=0.01,
        energy_joules=1200.0,
        mean_power_watts=300.0,
        mean_utilization=0.9,
        mean_clock_mhz=1400.0,
        least_clock_mhz=1300.0,
        peak_temperature_celsius=60.0,
        peak_memory_bytes=2**30,
    )
    return dataclasses.replace(one, **changes)


def make_steps(count=100, noise=0.02, seed=1, memory=0.0):
    """Draw step times near 0.1 s; with memory, noise is correlated from step to step."""
    generator = random.Random(seed)
    steps, level = [], generator.gauss(0, noise)
    for _ in range(count):
        steps.append(0.1 * math.exp(level))
        level = memory * level + generator.gauss(0, noise * math.sqrt(1 - memory**2))
    return steps
