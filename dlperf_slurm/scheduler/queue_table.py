"""What squeue and sacct print, "id|state|nodes|reason" -> what each array task does, by its id."""

import re

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.manifest import MAX_REPEATS
from dlperf_slurm.scheduler.states import UNKNOWN

# "7_[0-2,5%10]"; by a step "7_[0-20:2]"
_ARRAY_TASKS = re.compile(r"[1-9]\d{0,9}_\[(?P<list>[\d,:-]+)(?:%\d+)?\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


class CutListError(SchedulerError):
    """A list of array tasks of which the end is left out, "7_[0,2,4,...]"."""


def read_table(output: str) -> dict[str, dict[str, str]]:
    """The array tasks that lines of "id|state|nodes|reason" tell of, by their ids.

    A line for several of them, "7_[0-2,5]", is that of each of them, and a plain job, "7", the only
    one of an array; "CANCELLED by 1000" becomes CANCELLED. Raises CutListError when a list has been
    cut, and SchedulerError when it is longer than any run.
    """
    table: dict[str, dict[str, str]] = {}
    for line in output.splitlines():
        if line.count("|") < 3:
            continue
        job_ids, state, nodes, reason = (field.strip() for field in line.split("|", 3))
        info = {
            "JobID": job_ids,
            "State": (state.split() or [UNKNOWN])[0].rstrip("+"),
            "NodeList": nodes,
            "Reason": reason,
        }
        table.update(dict.fromkeys(_list_array_tasks(job_ids), info))
    return table


def count_jobs(output: str) -> int:
    """The jobs that lines of ids tell of, each array task by itself: "7_[0-2,5]" are four.

    Lines that begin with no digit are of other things. Raises as `read_table` does, but for lists
    of any length.
    """
    lines = (line.strip() for line in output.splitlines())
    return sum(
        sum(map(len, ranges)) if (ranges := _list_ranges(job_ids)) else 1
        for job_ids in lines
        if job_ids[:1].isdigit()
    )


def _list_array_tasks(job_ids: str) -> list[str]:
    ranges = _list_ranges(job_ids)
    if not ranges:
        return [f"{job_ids}_0" if slurm_client.is_job_id(job_ids) else job_ids]
    if sum(map(len, ranges)) > MAX_REPEATS:
        raise SchedulerError(f"more array tasks than a run can have: {job_ids[:80]!r}")
    job = job_ids.partition("_")[0]
    return [f"{job}_{number}" for tasks in ranges for number in tasks]


def _list_ranges(job_ids: str) -> list[range]:
    """The numbers of the array tasks in a list of them; none for the id of one job."""
    if "_[" in job_ids and "..." in job_ids:
        raise CutListError(f"a list of array tasks is cut: {job_ids[:80]!r}")
    match = _ARRAY_TASKS.fullmatch(job_ids)
    found: list[range] = []
    for part in match["list"].split(",") if match else ():
        numbers = _RANGE.fullmatch(part)
        if numbers is None:
            raise SchedulerError(f"no list of array tasks: {job_ids[:80]!r}")
        first, last, step = (None if text is None else int(text) for text in numbers.groups())
        assert first is not None, "what matches has a first number"
        found.append(range(first, (first if last is None else last) + 1, step or 1))
    return found
