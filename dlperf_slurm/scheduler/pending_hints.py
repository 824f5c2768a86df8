"""Slurm's reason why a job is pending -> what the user can do about it."""

import re
from collections.abc import Sequence

from dlperf_slurm.jobs.markers import read_hold
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler.state import PENDING, TaskState

HELD_BY_USER = "JobHeldUser"

# Patterns for the beginning of a reason in lower case, letters only; the first match is used.
# Reasons of a job that only has to wait are not listed: Priority, Resources, Dependency, BeginTime,
# Licenses, JobArrayTaskLimit, Prolog.
ADVICE = (
    (
        "launchfailedrequeuedheld",
        "its node could not start it, and Slurm holds it: see slurmd's log there, then `scontrol "
        "release {job}`, or `{command} cancel` and `retry`",
    ),
    ("jobheldadmin", "held by an administrator, who alone can release it"),
    ("jobrequeuedinheldstate", "requeued and held: `scontrol release {job}` lets it go"),
    ("jobhel", "held: `scontrol release {job}` lets it go"),
    ("jobholdmaxrequeue", "requeued too often, and held: `scontrol release {job}` tries once more"),
    (
        "partitiontimelimit",
        "it will never start: the partition allows less time; lower time_limit_minutes of the "
        "site, or tasks_per_job, or name another partition",
    ),
    (
        "partitionnodelimit",
        "it will never start: the partition allows fewer nodes; leave the topology out, or name "
        "another partition",
    ),
    ("partitiondown", "the partition takes no jobs now: `sinfo -p PARTITION`"),
    ("partitioninactive", "the partition starts no jobs now: `sinfo -p PARTITION`"),
    ("badconstraints", "no node has what it asks for: `scontrol show job {job}` says what that is"),
    ("invalidaccount", "the account cannot be used: name another one as `account` of the site"),
    ("invalidqos", "the QOS cannot be used: name another one as `qos` of the site"),
    ("accountnotallowed", "the partition does not take this account"),
    ("qosnotallowed", "the partition does not take this QOS"),
    ("reservationdeleted", "its reservation is gone: name another one, or none"),
    ("reqnodenotavail", "a node that it asks for is down or reserved: `sinfo -R`"),
    ("nodedown", "a node that it asks for is down: `sinfo -R`"),
    (
        r"(qos|assoc|association)\w*(wall|time)",
        "it will never start: a limit of the QOS or account allows less time; lower "
        "time_limit_minutes of the site",
    ),
    (
        r"(qos|assoc|association)\w*per(job|node)",
        "it will never start: a limit of the QOS or account allows less for one job: `sacctmgr "
        "show qos`",
    ),
    (
        r"(qos|assoc|association)",
        "a limit of the QOS or account: it starts when other jobs have ended, unless it asks for "
        "more than the limit by itself: `sacctmgr show qos`",
    ),
)


def find_advice(reason: str, job_id: str) -> str:
    """Return what to do about a pending reason of squeue(1), or '' if waiting is enough."""
    name = re.sub(r"[^a-z]", "", reason.lower())
    advice = next((advice for signs, advice in ADVICE if re.match(signs, name)), "")
    return advice.format(job=job_id, command=COMMAND)


def describe_pending(run: Run, states: Sequence[TaskState]) -> list[str]:
    """Return a line for each pending reason, with its array jobs and what to do."""
    waiting: dict[tuple[str, str], list[TaskState]] = {}
    for state in states:
        if state.state == PENDING and state.detail:
            hold = ""
            if state.detail == HELD_BY_USER:
                hold = read_hold(run.path, state.task.group_id)
            waiting.setdefault((state.detail, hold), []).append(state)
    lines = []
    for (reason, hold), found in sorted(waiting.items()):
        jobs = ",".join(dict.fromkeys(state.array_job_id for state in found))
        advice = find_advice(reason, jobs)
        if hold:
            advice = (
                f"held, as the launches before them failed alike, the last with {hold!r}; when "
                f"that is mended: `scontrol release {jobs}`, and at the end `{COMMAND} retry "
                f"{run.path}`"
            )
        text = f"{reason}, {len(found)} of array job {jobs}"
        lines.append(f"{text}: {advice}" if advice else text)
    return lines
