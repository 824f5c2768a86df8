"""Values are made on several cores, in order, and nothing of the processes is left behind."""

import multiprocessing
import os
import signal
import threading

import pytest

from dlperf_slurm.results import process_pool
from dlperf_slurm.results.process_pool import map_on_cores


@pytest.fixture
def three_cores(monkeypatch):
    monkeypatch.setattr(process_pool, "_count_cores", lambda: 3)


def tell_process(number):
    return number, os.getpid()


def test_values_are_in_order_and_from_as_many_processes_as_cores(three_cores):
    values = list(map_on_cores(tell_process, range(20), least=2))
    assert [number for number, _ in values] == list(range(20))
    assert len({process for _, process in values}) == 3
    assert {process for number, process in values if number % 3 == 0} == {os.getpid()}


def test_few_arguments_are_no_work_for_a_process(three_cores):
    assert {process for _, process in map_on_cores(tell_process, range(9), 5)} == {os.getpid()}
    assert list(map_on_cores(tell_process, [], 1)) == []


def test_no_process_is_copied_beside_other_threads():
    waiting = threading.Event()
    thread = threading.Thread(target=waiting.wait)
    thread.start()
    try:
        assert {process for _, process in map_on_cores(tell_process, range(9), 1)} == {os.getpid()}
    finally:
        waiting.set()
        thread.join()


def fail_at_7(number):
    if number == 7:
        raise ValueError("7 is no value")
    return number


def test_what_a_process_raises_is_raised_here(three_cores):
    values = map_on_cores(fail_at_7, range(20), 2)
    with pytest.raises(ValueError, match="7 is no value"):
        list(values)


def test_values_that_a_process_cannot_send_are_made_here(three_cores):
    functions = list(map_on_cores(lambda number: lambda: number, range(20), 2))
    assert [function() for function in functions] == list(range(20))


def test_processes_that_are_killed_are_made_good(three_cores):
    parent = os.getpid()

    def die_at_4(number):
        if number == 4 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert list(map_on_cores(die_at_4, range(20), 2)) == list(range(20))


def test_no_process_is_left_when_nobody_takes_the_rest(three_cores):
    values = map_on_cores(lambda number: b"x" * 2**20, range(50), 2)
    next(values)
    values.close()
    assert multiprocessing.active_children() == []
