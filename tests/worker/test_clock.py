"""Clocks of steps, over devices whose time is made up."""

import threading
from queue import SimpleQueue

import pytest

from dlperf_slurm.worker import clock
from dlperf_slurm.worker.clock import CompletionClock, EventClock

# for what must not take for ever, should it be wrong
PATIENCE_SECONDS = 10


class Event:
    """An event of a device whose time is that of its record, in milliseconds."""

    def record(self, stream):
        self.stream = stream
        stream.append(10.0 * len(stream) ** 2)
        self.time = stream[-1]

    def synchronize(self):
        self.is_awaited_after = len(self.stream)

    def query(self):
        return self.time < 90.0

    def elapsed_time(self, end):
        return end.time - self.time


def mark_all(marked, boundaries):
    for index in range(boundaries):
        marked.mark(index)
    return marked


def test_event_clock_is_one_step_ahead_and_has_the_times_between_its_marks():
    events = [Event() for _ in range(3)]
    assert mark_all(EventClock(events, []), 3).read_step_seconds() == pytest.approx([0.01, 0.03])
    assert [event.is_awaited_after for event in events[:2]] == [2, 3]
    assert not hasattr(events[2], "is_awaited_after")


def test_event_clock_tells_the_steps_that_the_device_has_ended_of_those_that_are_marked():
    marked = mark_all(EventClock([Event() for _ in range(6)], []), 4)
    # the device is not done with the third
    assert marked.read_ended_seconds(3) == pytest.approx([0.01, 0.03])
    assert marked.read_ended_seconds(1) == pytest.approx([0.01])


class Device:
    """A device with a queue, and its host, each in its own time, which only their work moves on.

    The thread that waits for a step has the time of the step's end.
    """

    def __init__(self, monkeypatch, host_seconds, device_seconds=1.0):
        self.host_seconds, self.device_seconds = host_seconds, device_seconds
        self.now, self.ends, self.awaited = 100.0, [], 0
        self._host = threading.get_ident()
        monkeypatch.setattr(clock, "perf_counter", self._read_time)

    def _read_time(self):
        is_host = threading.get_ident() == self._host
        return self.now if is_host else self.ends[self.awaited - 1]

    def give_out(self):
        """Launch a step; asserts that at most one other is running."""
        if len(self.ends) > 1:
            assert self.awaited >= len(self.ends) - 1
            self.now = max(self.now, self.ends[-2])
        self.now += self.host_seconds
        self.ends.append(max([self.now, *self.ends]) + self.device_seconds)

    def wait_for(self, step):
        self.awaited = step

    def make_clock(self, boundaries):
        return CompletionClock(boundaries, lambda: len(self.ends), self.wait_for)

    def run(self, steps):
        marked = self.make_clock(steps + 1)
        marked.mark(0)
        for index in range(1, steps + 1):
            self.give_out()
            marked.mark(index)
        return marked.read_step_seconds()


@pytest.mark.parametrize(
    ("host_seconds", "device_seconds", "steps"),
    [
        # a slow device's own times, behind the start of the first
        (0.125, 1.0, [1.125, 1.0, 1.0, 1.0]),
        # a slow host's; the first has both, as the device has nothing to do before
        (2.0, 0.5, [2.5, 2.0, 2.0, 2.0]),
        # steps that end as they are given out
        (2.0, 0.0, [2.0, 2.0, 2.0]),
    ],
)
def test_steps_fill_the_window_and_none_is_too_short(
    monkeypatch, host_seconds, device_seconds, steps
):
    device = Device(monkeypatch, host_seconds, device_seconds)
    assert device.run(len(steps)) == steps
    assert sum(steps) == device.ends[-1] - 100.0


class Stage:
    """Results that are there when a test says so."""

    def __init__(self, is_order_of_requests=False):
        self.given = 0
        self.ends = [threading.Event() for _ in range(6)]
        self.clock = CompletionClock(6, self.take_result, self.wait_for, is_order_of_requests)
        self.clock.mark(0)

    def take_result(self):
        self.given += 1
        return self.given

    def wait_for(self, step):
        assert self.ends[step].wait(PATIENCE_SECONDS)


def test_mark_returns_while_its_step_runs_and_the_step_before_has_ended():
    stage = Stage()
    for step in range(1, 5):
        stage.clock.mark(step)
        # those that have ended are told from the one that runs, without a wait
        assert len(stage.clock.read_ended_seconds(step)) == step - 1
        assert not stage.ends[step].is_set()
        stage.ends[step].set()
    # the last one waits for its step
    stage.ends[5].set()
    stage.clock.mark(5)
    assert len(stage.clock.read_ended_seconds(5)) == 5
    assert stage.clock.read_ended_seconds(0) == []


def test_result_is_asked_for_before_the_next_step_is_given_out_where_order_counts(monkeypatch):
    taken = []

    class Results(SimpleQueue):
        def get(self):
            taken.append(super().get())
            return taken[-1]

    monkeypatch.setattr(clock, "SimpleQueue", Results)
    stage = Stage(is_order_of_requests=True)
    for step in range(1, 5):
        stage.clock.mark(step)
        assert taken[-1] == step
        stage.ends[step].set()


def test_failure_of_a_step_is_raised_by_the_mark_of_the_next():
    def fail(step):
        raise RuntimeError(f"step {step} failed")

    marked = CompletionClock(4, lambda: 1, fail)
    marked.mark(0)
    marked.mark(1)
    with pytest.raises(RuntimeError, match="step 1 failed"):
        marked.mark(2)


def test_clock_s_thread_ends_with_its_last_mark():
    others = set(threading.enumerate())
    for boundaries in (1, 3):
        mark_all(CompletionClock(boundaries, lambda: None, lambda result: None), boundaries)
    own = set(threading.enumerate()) - others
    for thread in own:
        thread.join(PATIENCE_SECONDS)
    assert not any(thread.is_alive() for thread in own)
