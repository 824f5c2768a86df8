"""Slurm's reason why a job is pending -> what the user can do about it."""

import re
from collections.abc import Sequence

from dlperf_slurm.jobs.markers import read_hold
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.plain_text import count_things
from dlperf_slurm.program import COMMAND
from dlperf_slurm.scheduler.state import PENDING, TaskState

HELD_BY_USER = "JobHeldUser"

# Patterns for the beginning of a reason in lower case, letters only; the first match is used.
# Reasons of a job that only has to wait are not listed: Priority, Resources, Dependency, BeginTime,
# Licenses, JobArrayTaskLimit, Prolog.
HINTS = (
    (
        "launchfailedrequeuedheld",
        "the node could not start the job, so Slurm holds the job: see slurmd's log on the node. "
        "To start the same job: `scontrol release {job}`. To submit a new job: `{command} cancel`, "
        "then `{command} retry`",
    ),
    ("jobheldadmin", "an administrator holds job {job}; ask an administrator to release the job"),
    (
        "jobrequeuedinheldstate",
        "Slurm requeued and holds the job; to release it: `scontrol release {job}`",
    ),
    ("jobhel", "the job is held; to release it: `scontrol release {job}`"),
    (
        "jobholdmaxrequeue",
        "the job was requeued too often, so Slurm holds the job; to try once more: "
        "`scontrol release {job}`",
    ),
    (
        "partitiontimelimit",
        "will never start: the job's time limit is above the partition's; lower "
        "time_limit_minutes or tasks_per_job in the site file, or use another partition",
    ),
    (
        "partitionnodelimit",
        "will never start: the job needs more nodes than the partition allows (MaxNodes); remove "
        "this node count from the matrix's `topology`, or use another partition",
    ),
    ("partitiondown", "the partition accepts no jobs now: see `sinfo -p PARTITION`"),
    ("partitioninactive", "the partition starts no jobs now: see `sinfo -p PARTITION`"),
    (
        "badconstraints",
        "no node has the resources that the job requests: see `scontrol show job {job}`",
    ),
    ("invalidaccount", "the account cannot be used; set another `account` in the site file"),
    ("invalidqos", "the QOS cannot be used; set another `qos` in the site file"),
    (
        "accountnotallowed",
        "the partition does not accept this account; set another `account` or `partition` in the "
        "site file",
    ),
    (
        "qosnotallowed",
        "the partition does not accept this QOS; set another `qos` or `partition` in the site file",
    ),
    (
        "reservationdeleted",
        "the reservation no longer exists; set another `reservation` in the site file, or none",
    ),
    ("reqnodenotavail", "a node that the job requires is down or reserved: see `sinfo -R`"),
    ("nodedown", "a node that the job requires is down: see `sinfo -R`"),
    (
        r"(qos|assoc|association)\w*(wall|time)",
        "will never start: the job's time limit is above that of the QOS or account; lower "
        "time_limit_minutes in the site file",
    ),
    (
        r"(qos|assoc|association)\w*per(job|node)",
        "will never start: the job requests more than the QOS or account allows for one job: see "
        "`sacctmgr show qos`",
    ),
    (
        r"(qos|assoc|association)",
        "a limit of the QOS or account is reached; the job starts when other jobs end, unless this "
        "job alone requests more than the limit: see `sacctmgr show qos`",
    ),
)


def get_hint(reason: str, job_id: str) -> str:
    """Return advice for a pending reason and job (or ids with commas); '' if waiting is enough."""
    name = re.sub(r"[^a-z]", "", reason.lower())
    advice = next((advice for signs, advice in HINTS if re.match(signs, name)), "")
    return advice.format(job=job_id, command=COMMAND)


def describe_pending(run: Run, states: Sequence[TaskState]) -> list[str]:
    """Return a line for each pending reason in `states`, with its array jobs and what to do."""
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
        advice = get_hint(reason, jobs)
        if hold:
            advice = (
                "held, because several array tasks failed to launch in the same way, the last "
                f"with {hold!r}. After fixing the cause: `scontrol release {jobs}`, and at the end "
                f"`{COMMAND} retry {run.path}`"
            )
        text = f"{reason} ({count_things(len(found), 'array task')} of job {jobs})"
        lines.append(f"{text}: {advice}" if advice else text)
    return lines
