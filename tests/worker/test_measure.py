"""The measuring loop on one rank: what happens, in which order, and what its figures are of."""

import pytest
from support import attempts
from support.cases import vary

from dlperf_slurm.worker.measure import BOUNDARY_SAMPLES, measure_steps

# seconds of what a rank does; powers of two, so that sums are exact
STEP, ACCUMULATE, INFER, LOAD, FETCH = 1.0, 0.5, 2.0, 0.25, 0.125
PREFILL, DECODE = 8.0, 1 / 32
SYNCHRONIZE, BARRIER, HOOK, MARK = 4.0, 64.0, 256.0, 1 / 1024


class Rank:
    """A rank whose time passes only with what it does, all of which is in `log`.

    It is the session, and makes the clocks, the batches and the hooks too.
    """

    def __init__(self):
        self.log = []
        self.now = 0.0
        self.sizes_of_clocks = []

    def spend(self, what, seconds):
        self.log.append(what)
        self.now += seconds

    def step(self):
        self.spend("step", STEP)

    def accumulate(self):
        self.spend("accumulate", ACCUMULATE)

    def infer(self):
        self.spend("infer", INFER)

    def prefill(self):
        self.spend("prefill", PREFILL)

    def decode(self):
        self.spend("decode", DECODE)

    def load(self, batch):
        self.spend(f"load {batch}", LOAD)

    def synchronize(self):
        self.spend("sync", SYNCHRONIZE)

    def reset_peak_memory(self):
        self.spend("reset", 0.0)

    def make_clock(self, boundaries):
        self.sizes_of_clocks.append(boundaries)
        return Clock(self, boundaries)

    def make_batches(self):
        number = 0
        while True:
            self.spend(f"fetch {number}", FETCH)
            yield number
            number += 1

    def agree(self, steps):
        self.log.append(f"agree {steps}")
        return steps

    def measure(self, batches=None, **changes):
        """Measure, and return the measurement and the log up to the end of the window."""
        case = vary(attempts.CASE, **changes)
        measurement = measure_steps(
            self,
            lambda: self.spend("barrier", BARRIER),
            case,
            batches,
            lambda: self.spend("start", HOOK),
            lambda: self.spend("end", HOOK),
            agree=self.agree,
        )
        return measurement, self.log[: self.log.index("end") + 1]


class Clock:
    """Reads the rank's time; each mark takes some of it."""

    name = "of the rank"

    def __init__(self, rank, boundaries):
        self.rank = rank
        self.seconds = [None] * boundaries

    def mark(self, index):
        self.rank.spend("mark", MARK)
        self.seconds[index] = self.rank.now

    def read_step_seconds(self):
        return [end - start for start, end in zip(self.seconds, self.seconds[1:])]


@pytest.fixture
def rank(monkeypatch):
    one = Rank()
    for name in ("time.perf_counter", "dlperf_slurm.worker.clock.perf_counter"):
        monkeypatch.setattr(name, lambda: one.now)
    return one


def test_window_lies_between_two_fences_and_holds_nothing_but_steps_and_marks(rank):
    measurement, log = rank.measure(warmup_steps=1, measured_steps=2)
    assert log == [
        *["sync", "mark", "step", "mark", "sync"],
        *["reset", "sync", "barrier", "start"],
        *["mark", "step", "mark", "step", "mark", "sync", "end"],
    ]
    assert measurement.window_seconds == 2 * STEP + 3 * MARK + SYNCHRONIZE
    # after it, the cost of a boundary is the mean of marks without the wait
    assert measurement.boundary_seconds == MARK
    assert rank.log[len(log) :] == ["mark"] * (BOUNDARY_SAMPLES + 1) + ["sync"]
    assert measurement.data_wait_seconds == measurement.token_seconds == []
    # step times are those of the session's clock, warm-up apart
    assert measurement.warmup_step_seconds == [STEP + MARK]
    assert measurement.step_seconds == [STEP + MARK] * 2
    assert measurement.clock == Clock.name
    assert rank.sizes_of_clocks == [2, 3, BOUNDARY_SAMPLES + 1]


LEAST = {"warmup_steps": 3, "measured_steps": 2, "min_warmup_seconds": 10 * STEP}


def test_phases_take_more_steps_until_they_last_their_least_seconds(rank):
    measurement, log = rank.measure(**LEAST, min_measured_seconds=20 * STEP)
    # the first step, which compiles, does not count; the measured steps may be 5 % faster
    assert len(measurement.warmup_step_seconds) == 3 + 8
    assert len(measurement.step_seconds) == 21
    # nothing is agreed upon inside the window
    agreed = [what for what in log if what.startswith("agree")]
    assert agreed == ["agree 8", "agree 0", "agree 21"]
    assert log.index("agree 21") < log.index("reset")


def test_all_ranks_take_the_steps_of_the_one_that_needs_most(rank):
    # another rank asks for 5 more warm-up steps, then for none, then for 30 measured ones
    others = iter([5, 0, 30])
    rank.agree = lambda steps: max(steps, next(others))
    measurement, _ = rank.measure(warmup_steps=3, measured_steps=2, min_measured_seconds=STEP)
    assert [len(measurement.warmup_step_seconds), len(measurement.step_seconds)] == [8, 30]


def test_steps_of_a_coarse_clock_are_limited(rank, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.worker.measure.MOST_STEPS", 40)
    monkeypatch.setattr(Clock, "read_step_seconds", lambda clock: [0.0] * (len(clock.seconds) - 1))
    measurement, _ = rank.measure(**LEAST, min_measured_seconds=1.0)
    assert len(measurement.warmup_step_seconds) == len(measurement.step_seconds) == 40


def test_least_seconds_need_a_step_after_the_first_one(rank):
    measurement, _ = rank.measure(warmup_steps=0, measured_steps=2, min_measured_seconds=4 * STEP)
    assert [len(measurement.warmup_step_seconds), len(measurement.step_seconds)] == [2, 5]


def test_inference_is_fenced_alike_and_timed_by_the_host(rank):
    measurement, log = rank.measure(warmup_steps=1, measured_steps=2, mode="infer")
    assert log == [
        *["sync", "infer", "sync"],
        *["reset", "sync", "barrier", "start"],
        *["infer", "infer", "sync", "end"],
    ]
    assert rank.sizes_of_clocks == []
    assert measurement.clock == "host"
    assert measurement.token_seconds == []
    assert [len(measurement.warmup_step_seconds), len(measurement.step_seconds)] == [1, 2]
    assert measurement.window_seconds == 2 * INFER + SYNCHRONIZE


def test_step_that_accumulates_has_one_boundary_for_all_its_batches(rank):
    measurement, log = rank.measure(warmup_steps=0, measured_steps=2, gradient_accumulation=3)
    whole_step = ["accumulate", "accumulate", "step"]
    # the fences stand without warm-up too
    assert log == [
        *["sync", "mark", "sync"],
        *["reset", "sync", "barrier", "start"],
        *["mark", *whole_step, "mark", *whole_step, "mark"],
        *["sync", "end"],
    ]
    assert measurement.step_seconds == [2 * ACCUMULATE + STEP + MARK] * 2


def test_each_batch_is_loaded_before_its_part_of_the_step_from_the_first_step_on(rank):
    measurement, log = rank.measure(
        rank.make_batches(), warmup_steps=1, measured_steps=1, gradient_accumulation=2
    )
    assert measurement.data_wait_seconds == [2 * (FETCH + LOAD)]
    assert log == [
        *["sync", "mark"],
        *["fetch 0", "load 0", "accumulate", "fetch 1", "load 1", "step", "mark"],
        *["sync", "reset", "sync", "barrier", "start", "mark"],
        *["fetch 2", "load 2", "accumulate", "fetch 3", "load 3", "step", "mark"],
        *["sync", "end"],
    ]


def test_wait_during_warm_up_is_none_of_the_measured_steps(rank):
    def make_batches():
        for number, seconds in enumerate([32.0, 16.0, 8.0, 0.0]):
            rank.spend("fetch", seconds)
            yield number

    measurement, _ = rank.measure(make_batches(), warmup_steps=2, measured_steps=2)
    assert measurement.data_wait_seconds == [8.0 + LOAD, LOAD]


def test_generation_is_a_prefill_and_a_decoding_of_each_further_token(rank):
    measurement, log = rank.measure(mode="infer", output_tokens=3, warmup_steps=1, measured_steps=2)
    generation = ["prefill", "decode", "decode"]
    assert log == [
        *["sync", *generation, "sync"],
        *["reset", "sync", "barrier", "start"],
        *[*generation, *generation, "sync", "end"],
    ]
    assert measurement.token_seconds == 2 * [PREFILL, DECODE, DECODE]
    assert measurement.step_seconds == 2 * [PREFILL + 2 * DECODE]
    assert measurement.clock == "host"


def test_generation_of_one_token_is_a_prefill(rank):
    measurement, _ = rank.measure(mode="infer", output_tokens=1, warmup_steps=0, measured_steps=2)
    assert measurement.token_seconds == [PREFILL, PREFILL]
