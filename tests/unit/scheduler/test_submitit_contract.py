"""The private parts of submitit that submit and watch override or use, as 1.5.x has them."""

from importlib.metadata import version

import pytest

from dlperf_slurm.scheduler.queue import (
    LocalArrayTaskJob,
    ProcessWatcher,
    QueueWatcher,
    SlurmArrayTaskJob,
)

JOB_ID = "7_3"


def test_installed_version_is_one_that_the_overrides_were_written_for():
    assert version("submitit").startswith("1.5.")


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
