"""Why array tasks are pending -> what can be done, in as many lines as there are reasons."""

import io
import re

import pytest
from support.problems import assert_problem

from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.reports.plain_console import PlainConsole
from dlperf_slurm.reports.progress import print_pending_reasons
from dlperf_slurm.scheduler.pending_hints import describe_pending, get_hint
from dlperf_slurm.scheduler.state import PENDING, RUNNING, TaskState


def make_state(array_task_id, reason, state=PENDING, array_job_id="7"):
    task = RunTask("1n1g", array_task_id, "cases/case/r1/a1")
    return TaskState(task, array_job_id, state, reason)


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("job requeued in held state", "requeued and holds the job.*`scontrol release 7`"),
        ("JobHeldAdmin", "an administrator holds job"),
        ("launch_failed_requeued_held", "the node could"),
        ("PartitionTimeLimit", "never start: .*time_limit_minutes"),
        ("PartitionNodeLimit", "never start: .*topology"),
        ("QOSMaxWallDurationPerJobLimit", "never start: .*time_limit_minutes"),
        ("QOSMaxCpuPerJobLimit", "never start: .*`sacctmgr"),
        ("QOSMaxJobsPerUserLimit", "^a limit of the .*when other jobs"),
        ("AssocGrpGRES", "^a limit of the .*when other jobs"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "`sinfo -R`"),
        ("BadConstraints", "`scontrol show job 7`"),
    ],
)
def test_reason_that_waiting_does_not_mend_has_advice(reason, advice):
    assert re.search(advice, get_hint(reason, "7"))


@pytest.mark.parametrize("reason", ["Priority", "BeginTime"])
def test_reason_that_is_a_turn_to_wait_for_has_none(reason):
    assert get_hint(reason, "7") == ""


def test_reasons_are_told_once_with_their_jobs(staged_run):
    states = [
        make_state(0, "JobHeldUser"),
        make_state(1, "JobHeldUser", array_job_id="8"),
        make_state(2, "Priority"),
        make_state(3, "", PENDING),
        make_state(4, "n1", RUNNING),
    ]
    assert describe_pending(staged_run, states) == [
        "JobHeldUser (2 array tasks of job 7,8): the job is held; to release it: "
        "`scontrol release 7,8`",
        "Priority (1 array task of job 7)",
    ]


def test_reason_is_named_when_it_is_seen_first(staged_run):
    console = PlainConsole(io.StringIO(), width=200)
    named = set()
    print_pending_reasons(staged_run, [make_state(0, "Priority")], named, console)
    print_pending_reasons(
        staged_run, [make_state(0, "Priority"), make_state(1, "JobHeldUser")], named, console
    )
    assert console.file.getvalue().splitlines() == [
        "  pending: Priority (1 array task of job 7)",
        "  pending: JobHeldUser (1 array task of job 7): the job is held; to release it: "
        "`scontrol release 7`",
    ]


def test_array_that_its_script_has_held_is_told_with_the_failure(staged_run):
    (staged_run.path / "markers" / "1n1g.held").symlink_to("exit code 69 on n1: no /a/b")
    (line,) = describe_pending(staged_run, [make_state(3, "JobHeldUser")])
    says = (
        *("held", "'exit code 69 on n1: no /a/b'", "`scontrol release 7`"),
        f"`dlperf-slurm retry {staged_run.path}`",
    )
    assert_problem(line, key="JobHeldUser (1 array task of job 7)", says=says)
