"""Array tasks that completed while a run is followed -> the median throughput of their case."""

from collections.abc import Sequence

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.jobs.attempts import validate_attempt
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.results.labels import get_unit
from dlperf_slurm.results.number_formats import write_digits
from dlperf_slurm.scheduler.state import COMPLETED, TaskState
from dlperf_slurm.stats.median import compute_median

# records to read per poll: hundreds of array tasks may end between two polls
MOST_READ = 20


class LiveThroughput:
    """The throughputs of completed array tasks of a run that is followed.

    It reads at most MOST_READ records per poll of the scheduler.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._planned = {case.case_id: case for case in run.manifest.cases}
        self._seen: set[str] = set()
        self._rates: dict[str, list[float]] = {}
        self._text = ""

    def describe(self, states: Sequence[TaskState]) -> str:
        """Return the median throughput of the case whose repeat completed last, as text.

        "pytorch 1n2g fp32: 190 images/s, median of 3 repeats", or "" until an array task has
        completed with a valid record. `states` has all array tasks.
        """
        done = [state.task for state in states if state.state == COMPLETED]
        fresh = [task for task in done if task.marker not in self._seen]
        self._seen |= {task.marker for task in fresh}
        for task in fresh[-MOST_READ:]:
            planned = self._planned[task.case_id]
            judgement = validate_attempt(self._run, planned, task)
            if judgement.record is not None and judgement.is_valid:
                rates = self._rates.setdefault(task.case_id, [])
                rates.append(judgement.record.samples_per_s)
                self._text = _write(planned.axes, get_unit(planned.model, planned.unit), rates)
        return self._text


def _write(axes: Axes, unit: str, rates: Sequence[float]) -> str:
    """Format the median of the throughputs `rates` with the case's axes and unit."""
    rate = write_digits(compute_median(rates), 3)
    median = f", median of {len(rates)} repeats" if len(rates) > 1 else ""
    return f"{axes.framework} {axes.topology} {axes.precision}: {rate} {unit}{median}"
