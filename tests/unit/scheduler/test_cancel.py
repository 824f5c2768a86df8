"""Cancelling a run on Slurm; squeue and scancel are fake programs on PATH here."""

import pytest
from builders import print_queue, show_queue, write_program

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import (
    CANCELLED,
    SUBMITTED,
    Event,
    append_event,
    hold_submit_lock,
    read_journal,
)
from dlperf_slurm.scheduler import cancel

JOB_ID = "42"


@pytest.fixture
def run(staged_run, bin_dir, monkeypatch):
    """Return a run whose first array job is submitted; scancel empties the queue at once."""
    append_event(staged_run.path, Event(SUBMITTED, "2024-05-01T12:00:00Z", "1n1g", JOB_ID))
    write_program(bin_dir, "scancel", f'echo "$@" >> {bin_dir}/cancelled')
    monkeypatch.setattr(cancel, "LOOK_SECONDS", 0.0)
    return staged_run


def show(bin_dir, row, **values):
    """Write a squeue that shows a row until scancel is called."""
    ended = f"[ ! -e {bin_dir}/cancelled ] || {{ {print_queue()}; exit; }}"
    write_program(bin_dir, "squeue", f"{ended}; {print_queue(row, **values)}")


def list_cancelled(bin_dir):
    path = bin_dir / "cancelled"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


@pytest.mark.parametrize(
    ("row", "name", "script", "cancelled"),
    [
        (f"{JOB_ID}_[0-1]|PENDING||Priority", "renamed", "{run}/scripts/1n1g.sbatch", [JOB_ID]),
        # a row whose id scancel would take for an option
        ("--user=victim|PENDING||Priority", "{id}.1n1g", "", []),
        # somebody else was given the id
        (f"{JOB_ID}_0|RUNNING|n1|None", "other", "/other/job.sh", []),
        # the journal does not know it
        ("43_0|RUNNING|n1|None", "{id}.1n1g", "", ["43"]),
        (f"{JOB_ID}_0|COMPLETING|n1|None", "{id}.1n1g", "", []),
    ],
)
def test_jobs_of_the_run_are_cancelled_and_no_others(run, bin_dir, row, name, script, cancelled):
    show(bin_dir, row, name=name.format(id=run.run_id), script=script.format(run=run.path))
    assert cancel.cancel_run(run, print) == (2 if "[0-1]" in row else len(cancelled))
    assert list_cancelled(bin_dir) == cancelled
    (event,) = (event for event in read_journal(run.path) if event.event == CANCELLED)
    assert event.detail.split() == cancelled


@pytest.mark.parametrize("job_id", ["--user=victim", "1 2", "all", "\u0663"])
def test_what_the_journal_calls_a_job_does_not_reach_scancel(run, bin_dir, job_id):
    show_queue(bin_dir)
    append_event(run.path, Event(SUBMITTED, "2024-05-01T12:00:00Z", "1n2g", job_id))
    assert cancel.cancel_run(run, print) == 0
    assert list_cancelled(bin_dir) == []


def test_cancel_beside_a_submission_is_refused(run):
    with hold_submit_lock(run.path), pytest.raises(SchedulerError, match="another process"):
        cancel.cancel_run(run, print)


def test_job_that_goes_on_after_scancel_is_named(run, bin_dir):
    show_queue(bin_dir, f"{JOB_ID}_1|RUNNING|n1|None", name=f"{run.run_id}.1n1g")
    with pytest.raises(SchedulerError, match=rf"{run.run_id}.*{JOB_ID}_1 RUNNING"):
        cancel.cancel_run(run, print)
    assert list_cancelled(bin_dir) == [JOB_ID]
