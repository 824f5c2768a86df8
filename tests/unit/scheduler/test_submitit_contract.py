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
from dlperf_slurm.scheduler.queue import (
    LocalArrayTaskJob,
    ProcessWatcher,
    QueueWatcher,
    SlurmArrayTaskJob,
)

JOB_ID = "7_3"


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
        (core.Executor.submit, ["self", "fn", "args", "kwargs"]),
        (core.Executor.batch, ["self", "allow_implicit_submissions"]),
        (core.Job.__init__, ["self", "folder", "job_id", "tasks"]),
        (core.InfoWatcher.__init__, ["self", "delay_s"]),
        (core.InfoWatcher.register_job, ["self", "job_id"]),
        (core.InfoWatcher.update, ["self"]),
        (core.InfoWatcher.get_info, ["self", "job_id", "mode"]),
        (submitit_slurm.SlurmInfoWatcher.get_state, ["self", "job_id", "mode"]),
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
            ["_internal_process_submissions", "job_class"],
        ),
        (core.Executor, LocalArrayExecutor, ["_internal_process_submissions", "job_class"]),
        (submitit_slurm.SlurmInfoWatcher, QueueWatcher, ["register_job", "update"]),
        (core.InfoWatcher, ProcessWatcher, ["register_job", "update", "get_state"]),
    ],
    ids=["SlurmArrayExecutor", "LocalArrayExecutor", "QueueWatcher", "ProcessWatcher"],
)
def test_overrides_replace_something_of_submitit(theirs, ours, names):
    assert [name for name in names if not hasattr(theirs, name)] == []
    assert [name for name in names if name not in vars(ours)] == []


def test_watcher_keeps_its_knowledge_where_we_write_it():
    attributes = vars(submitit_slurm.SlurmInfoWatcher())
    assert attributes["_registered"] == attributes["_finished"] == set()
    assert attributes["_info_dict"] == {}
    assert attributes["_last_status_check"] == float("-inf")


def test_question_in_cache_mode_calls_nobody(home):
    watcher = QueueWatcher((), since=None)
    job = SlurmArrayTaskJob(home, JOB_ID, watcher)
    assert job.get_info(mode="cache") == {}
    assert watcher.calls == {"squeue": 0, "sacct": 0}


@pytest.mark.parametrize(
    ("make_job", "make_watcher"),
    [
        (SlurmArrayTaskJob, lambda: QueueWatcher((), since=None)),
        (LocalArrayTaskJob, ProcessWatcher),
    ],
    ids=["slurm", "local"],
)
def test_job_registers_its_array_task_in_its_own_watcher(home, make_job, make_watcher):
    mine, other = make_watcher(), make_watcher()
    job = make_job(home, JOB_ID, mine)
    assert job.job_id == JOB_ID
    assert mine._registered == {JOB_ID}
    assert other._registered == set()


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
