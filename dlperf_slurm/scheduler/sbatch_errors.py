"""Classify the error messages of Slurm's clients: temporary, permanent, or no answer."""

import re
from collections.abc import Sequence

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import REFUSED, Event, append_event
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.program import COMMAND

# Slurm's clients if the controller does not answer, and `run_client` on its own timeout
_NO_ANSWER = re.compile(
    r"did not respond within|Unable to contact slurm controller|Socket timed out|"
    r"Connection refused|Zero Bytes were transmitted|in standby mode|"
    r"Communication connection failure"
)
# the limits that Slurm names; those on the number of submitted jobs are temporary
_NAMED_LIMIT = re.compile(r"\b(?:QOS|Assoc)\w*Limit\b")
# MaxJobCount of slurm.conf, and a limit that Slurm before 20.11 does not name
_UNNAMED_LIMIT = re.compile(
    r"temporarily unable to accept job|Job violates accounting/QOS policy \(job submit limit"
)

# errors of `sbatch --test-only` that waiting does not resolve
IMPOSSIBLE = (
    "Requested node configuration is not available",
    "nvalid partition",
    "Invalid account",
    "Invalid qos",
    "Invalid feature",
    "Requested reservation is invalid",
    "Requested time limit is invalid",
    "Node count specification invalid",
    "More processors requested than permitted",
    "Invalid generic resource",
    "QOSMaxWallDurationPerJobLimit",
)


def is_limit_that_passes(words: str) -> bool:
    """Return whether an error of sbatch is a limit on the number of jobs, so that a retry helps.

    `words` is the error message.
    """
    named = _NAMED_LIMIT.findall(words)
    if named:
        return any("SubmitJob" in name for name in named)
    return _UNNAMED_LIMIT.search(words) is not None


def is_no_answer(words: str) -> bool:
    """Return whether sbatch's message, as of a timeout, is no answer: Slurm may have the job."""
    if slurm_client.EXPIRED_TOKEN in words:
        return False
    return _NO_ANSWER.search(words) is not None and not is_limit_that_passes(words)


def is_surely_refused(words: str) -> bool:
    """Return whether an error message of sbatch is a limit on jobs, so that no job was queued."""
    return is_limit_that_passes(words) and _NO_ANSWER.search(words) is None


def refuse_impossible(run: Run, group_ids: Sequence[str]) -> None:
    """Test groups with `sbatch --test-only`; journal those that Slurm can never run as refused.

    Raises SchedulerError, which lists them all. Limits on the number of jobs, and a controller that
    does not answer, are no reason to refuse a group here.
    """
    problems = {}
    for group_id in group_ids:
        command = ["sbatch", "--test-only", str(run.get_script_path(group_id))]
        try:
            slurm_client.run_client(command, inherit=run.manifest.inherit)
        except SchedulerError as error:
            if any(sign in str(error) for sign in IMPOSSIBLE):
                problems[group_id] = str(error)
    for group_id, problem in problems.items():
        append_event(run.path, Event(REFUSED, group_id=group_id, detail=problem))
    if problems:
        lines = (f"{group_id} cannot run: {problem}" for group_id, problem in problems.items())
        raise SchedulerError(
            "\n".join(lines) + "\n"
            f"Nothing more was submitted. After fixing the cause: {COMMAND} resume {run.path} "
            "(--set KEY=VALUE changes a site value)"
        )
