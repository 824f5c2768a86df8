"""What squeue and sacct print, "id|state|nodes|reason" -> what each array task does, by its id."""

import re

from dlperf_slurm import slurm_client
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.manifest import MAX_REPEATS
from dlperf_slurm.scheduler.states import UNKNOWN

# "7_[0-2,5%10]"; by a step "7_[0-20:2]"
_ARRAY_TASKS = re.compile(r"(?P<job>[1-9]\d{0,9})_\[(?P<list>[\d,:-]+)(?:%\d+)?\]")
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


def _list_array_tasks(job_ids: str) -> list[str]:
    if "_[" in job_ids and "..." in job_ids:
        raise CutListError(f"a list of array tasks is cut: {job_ids[:80]!r}")
    match = _ARRAY_TASKS.fullmatch(job_ids)
    if match is None:
        return [f"{job_ids}_0" if slurm_client.is_job_id(job_ids) else job_ids]
    found: list[str] = []
    for part in match["list"].split(","):
        numbers = _RANGE.fullmatch(part)
        if numbers is None:
            raise SchedulerError(f"no list of array tasks: {job_ids[:80]!r}")
        first, last, step = (None if text is None else int(text) for text in numbers.groups())
        assert first is not None, "what matches has a first number"
        tasks = range(first, (first if last is None else last) + 1, step or 1)
        if len(found) + len(tasks) > MAX_REPEATS:
            raise SchedulerError(f"more array tasks than a run can have: {job_ids[:80]!r}")
        found += [f"{match['job']}_{number}" for number in tasks]
    return found
