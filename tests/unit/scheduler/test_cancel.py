"""Cancelling a run on Slurm; squeue and scancel are fake programs on PATH here."""

import pytest
from builders import print_queue, show_queue, write_program

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import CANCELLED, SUBMITTED, Event, append_event, read_journal
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


def test_job_that_was_renamed_is_cancelled(run, bin_dir):
    script = run.path / "scripts" / "1n1g.sbatch"
    show(bin_dir, f"{JOB_ID}_[0-1]|PENDING||Priority", name="renamed", script=script)
    assert cancel.cancel_run(run, print) == 2
    assert list_cancelled(bin_dir) == [JOB_ID]
    (event,) = (event for event in read_journal(run.path) if event.event == CANCELLED)
    assert event.detail == JOB_ID


def test_job_of_somebody_else_that_was_given_the_id_is_left_alone(run, bin_dir):
    show(bin_dir, f"{JOB_ID}_0|RUNNING|n1|None", name="other", script="/other/job.sh")
    assert cancel.cancel_run(run, print) == 0
    assert list_cancelled(bin_dir) == []


def test_job_that_the_journal_does_not_know_is_cancelled_by_its_name(run, bin_dir):
    show(bin_dir, "43_0|RUNNING|n1|None", name=f"{run.run_id}.1n1g")
    assert cancel.cancel_run(run, print) == 1
    assert list_cancelled(bin_dir) == ["43"]


def test_job_that_is_completing_is_left_alone(run, bin_dir):
    show(bin_dir, f"{JOB_ID}_0|COMPLETING|n1|None", name=f"{run.run_id}.1n1g")
    assert cancel.cancel_run(run, print) == 0
    assert list_cancelled(bin_dir) == []


@pytest.mark.parametrize("is_renamed", [False, True])
def test_job_that_goes_on_after_scancel_is_named(run, bin_dir, is_renamed):
    script = run.path / "scripts" / "1n1g.sbatch"
    name = "renamed" if is_renamed else f"{run.run_id}.1n1g"
    show_queue(bin_dir, f"{JOB_ID}_1|RUNNING|n1|None", name=name, script=script)
    with pytest.raises(SchedulerError, match=rf"{run.run_id}.*{JOB_ID}_1 RUNNING"):
        cancel.cancel_run(run, print)
    assert list_cancelled(bin_dir) == [JOB_ID]
