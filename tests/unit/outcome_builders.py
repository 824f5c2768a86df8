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
    return change_cases(make_outcomes(planned, rates, **record_changes), **(changes or {}))


def change_outcomes(case, list_changes) -> CaseOutcomes:
    """Change each outcome of a case: its record by the dict "record", itself by the other items."""

    def change(outcome):
        own = list_changes(outcome)
        record = dataclasses.replace(outcome.record, **own.pop("record", {}))
        return dataclasses.replace(outcome, record=record, **own)

    return CaseOutcomes(case.case, tuple(map(change, case.outcomes)))


def make_started_case(*starts, submitted_at="2026-01-01T00:00:00Z", **changes) -> CaseOutcomes:
    """Make a case with one repeat for each of these seconds by phase; None has no phases."""

    def list_changes(outcome):
        seconds = starts[outcome.repeat - 1] or {}
        phases = tuple(Phase(name, value) for name, value in seconds.items())
        noise = NoiseReport("run", outcome.case_id, outcome.repeat, 1, (), phases)
        times = {"submitted_at": submitted_at, "record": {"started_at": "2026-01-01T00:01:00Z"}}
        return {"sidecars": Sidecars(noise), **times}

    planned = make_planned_case(repeats=len(starts), **changes)
    return change_outcomes(make_outcomes(planned, [100.0] * len(starts)), list_changes)


def change_cases(outcomes, **changes) -> CaseOutcomes:
    """Change the case in records but keep the throughputs, so that the windows change."""

    def list_changes(outcome):
        record, case = outcome.record, vary(outcome.record.case, **changes)
        seconds = case.global_batch_size * case.measured_steps / record.samples_per_s
        ranks = tuple(make_rank(rank.rank, window_seconds=seconds) for rank in record.ranks)
        return {"record": {"case": case, "ranks": ranks if changes else record.ranks}}

    return change_outcomes(outcomes, list_changes)


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
