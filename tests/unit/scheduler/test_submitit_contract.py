"""The private parts of submitit that submit and watch override or use, as 1.5.x has them."""

import inspect
from importlib.metadata import version

import pytest
from submitit.core import core, utils
from submitit.slurm import slurm as submitit_slurm

from dlperf_slurm.scheduler.executors import (
    LocalArrayExecutor,
    ScriptCall,
    SlurmArrayExecutor,
)


def list_parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_installed_version_is_one_that_the_overrides_were_written_for():
    assert version("submitit").startswith("1.5.")


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (core.Executor.__init__, ["self", "folder", "parameters"]),
        (core.Executor._internal_process_submissions, ["self", "delayed_submissions"]),
        (
            submitit_slurm.SlurmExecutor._internal_process_submissions,
            ["self", "delayed_submissions"],
        ),
        (submitit_slurm.SlurmExecutor._get_job_id_from_submission_command, ["string"]),
        (core.Executor.submit, ["self", "fn", "args", "kwargs"]),
        (core.Executor.batch, ["self", "allow_implicit_submissions"]),
        (core.Job.__init__, ["self", "folder", "job_id", "tasks"]),
        (utils.DelayedSubmission.__init__, ["self", "function", "args", "kwargs"]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_function_takes_the_expected_parameters(function, parameters):
    assert list_parameters(function) == parameters


@pytest.mark.parametrize(
    ("theirs", "ours", "names"),
    [
        (
            submitit_slurm.SlurmExecutor,
            SlurmArrayExecutor,
            ["_internal_process_submissions", "_get_job_id_from_submission_command"],
        ),
        (core.Executor, LocalArrayExecutor, ["_internal_process_submissions", "job_class"]),
    ],
    ids=["SlurmArrayExecutor", "LocalArrayExecutor"],
)
def test_overrides_replace_something_of_submitit(theirs, ours, names):
    assert [name for name in names if not hasattr(theirs, name)] == []
    assert [name for name in names if name not in vars(ours)] == []


def test_job_asks_nobody_when_it_is_made(home, bin_dir):
    """The states come from our own reader of the queue; bin_dir has no squeue and no sacct."""
    for make_job in (submitit_slurm.SlurmJob, core.Job):
        assert make_job(home, "7_3").job_id == "7_3"


def test_batch_hands_over_all_submissions_at_once(home):
    batches = []

    class Recorder(LocalArrayExecutor):
        def __init__(self, folder):
            core.Executor.__init__(self, folder)

        def _internal_process_submissions(self, delayed_submissions):
            batches.append([submission.function for submission in delayed_submissions])
            return [self.job_class(self.folder, f"7_{n}") for n in range(len(delayed_submissions))]

    calls = [ScriptCall(home / "script", index) for index in range(3)]
    executor = Recorder(home)
    with executor.batch():
        jobs = [executor.submit(call) for call in calls]
    assert batches == [calls]
    assert [job.job_id for job in jobs] == ["7_0", "7_1", "7_2"]
