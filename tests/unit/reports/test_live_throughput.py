"""While a run is followed, the throughput of what was measured last is told."""

import re

from builders import (
    find_task,
    make_failed_record,
    make_record,
    print_queue,
    read_case,
    submit_run,
    write_program,
    write_record,
)

from dlperf_slurm.cli import main
from dlperf_slurm.contract.record import OUT_OF_MEMORY
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import STATE, Event, append_event
from dlperf_slurm.jobs.run_ownership import mark_own
from dlperf_slurm.reports import live_throughput
from dlperf_slurm.reports.live_throughput import LiveThroughput
from dlperf_slurm.scheduler.state import COMPLETED, RUNNING, TaskState


def measure(run, topology, repeat, window_seconds):
    """Return the state of an array task that has completed, with a record of 10 steps of 8."""
    task = find_task(run, topology, repeat)
    write_record(run, task, make_record(read_case(run, task), window_seconds=window_seconds))
    return TaskState(task, "7", COMPLETED, "")


def test_it_is_the_median_of_the_repeats_of_the_case_that_ended_last(staged_run):
    rate = LiveThroughput(staged_run)
    states = [measure(staged_run, "1n1g", 1, 1.0)]
    assert rate.describe(states) == "pytorch 1n1g fp32: 80.0 images/s"
    states.append(measure(staged_run, "1n2g", 1, 1.0))
    assert rate.describe(states) == "pytorch 1n2g fp32: 160 images/s"
    states.append(measure(staged_run, "1n1g", 2, 2.0))
    assert rate.describe(states) == "pytorch 1n1g fp32: 60.0 images/s, median of 2 repeats"
    assert rate.describe(states) == "pytorch 1n1g fp32: 60.0 images/s, median of 2 repeats"


def test_what_has_not_completed_or_is_not_sound_tells_none(staged_run):
    rate = LiveThroughput(staged_run)
    task = find_task(staged_run, "1n1g", 1)
    assert rate.describe([TaskState(task, "7", RUNNING, "")]) == ""
    record = make_failed_record(read_case(staged_run, task), OUT_OF_MEMORY, "rank 0: x")
    write_record(staged_run, task, record)
    assert rate.describe([TaskState(task, "7", COMPLETED, "")]) == ""


def test_no_more_records_are_read_than_a_look_has_time_for(staged_run, monkeypatch):
    monkeypatch.setattr(live_throughput, "MOST_READ", 1)
    states = [measure(staged_run, "1n1g", repeat, float(repeat)) for repeat in (1, 2)]
    assert LiveThroughput(staged_run).describe(states) == "pytorch 1n1g fp32: 40.0 images/s"


def test_wait_shows_it_and_ends_with_a_summary(bin_dir, staged_run, capsys):
    write_program(bin_dir, "sbatch", "echo 7")
    for name in ("srun", "squeue", "sacct", "scontrol"):
        write_program(bin_dir, name, print_queue())
    submit_run(staged_run, lambda line: None)
    mark_own(staged_run)
    for task in staged_run.read_all_tasks():
        write_record(staged_run, task, make_record(read_case(staged_run, task)))
        event = Event(STATE, format_now(), task.group_id, "7", task.array_task_id, COMPLETED)
        append_event(staged_run.path, event)
    assert main(["wait", str(staged_run.path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(
        r"6/6 done: 6 COMPLETED; pytorch \dn\dg fp32: .* images/s, median of 2 repeats$", lines[0]
    )
    assert len(lines) < 40
