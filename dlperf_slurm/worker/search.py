"""A case without a fixed batch size -> trials in fresh processes, then its record."""

import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from typing import Callable, Iterable, Optional, Sequence, Tuple

from dlperf_slurm.contract.axes import FOLDER
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import FAILED, OK, OUT_OF_MEMORY, RECORD_FILE, BatchTrial, Record
from dlperf_slurm.worker.datasets import open_dataset
from dlperf_slurm.worker.datasets.description import TRAIN_SPLIT, DataError
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.processes import CommandRunner

BATCH_FILE = "batch.json"
TRIALS_DIR = "trials"
MEASURED_DIR = "measured"

# The optimizer state is allocated at the end of the first step, and a compiler may recompile for
# it: the second step is the first with the steady-state memory, the third confirms it.
TRIAL_WARMUP_STEPS = 1
TRIAL_MEASURED_STEPS = 2

# upper bound of the search per device, above any batch size that is worth measuring
LARGEST_TRIED = 2**16


class FailedLaunchError(RuntimeError):
    """A launch that failed for another reason than memory, so that the search cannot go on."""


def search_batch_size(attempt_dir: Path, launch_command: Sequence[str]) -> int:
    """Find the batch size of this attempt's case, measure with it and write the record.

    Runs on one process without MPI, which runs `launch_command` once per trial. All repeats of a
    case measure the same batch size: that of the first repeat with a record. Returns the exit code:
    0, or that of the failed launch.
    """
    search = Search(attempt_dir, launch_command)
    with suppress(FailedLaunchError):
        measure_as_others(search, case_dir=get_case_dir(attempt_dir))
    return search.finish()


class Search:
    """The search of one attempt: the batch sizes tried, and folder and exit code of the latest.

    Launches run one at a time; SIGTERM ends the ranks, then this process.
    """

    def __init__(self, attempt_dir: Path, launch_command: Sequence[str]) -> None:
        """Read the case; a launch is `launch_command` with the folder of the trial appended."""
        self.case = read_json(attempt_dir / CASE_FILE, Case)
        self.trials: Tuple[BatchTrial, ...] = ()
        self._attempt_dir = attempt_dir
        self._latest_dir = attempt_dir
        self._exit_code = 0
        self._command = launch_command
        self._child = CommandRunner()

    def fits(self, batch_size_per_device: int) -> bool:
        """Run a trial of a few steps with this batch size; return whether it fits in memory.

        Raises FailedLaunchError if the trial failed for another reason.
        """
        case = replace(
            self.case,
            axes=replace(self.case.axes, batch_size_per_device=batch_size_per_device),
            warmup_steps=TRIAL_WARMUP_STEPS,
            measured_steps=TRIAL_MEASURED_STEPS,
            min_warmup_seconds=0.0,
            min_measured_seconds=0.0,
        )
        trial = self._launch(case, TRIALS_DIR)
        self.trials += (trial,)
        return not trial.is_out_of_memory

    def measure(self, batch_size_per_device: int) -> bool:
        """Measure all steps with this batch size; return whether they fit in memory.

        If they do not, the launch is added to `trials`. Raises FailedLaunchError as `fits` does.
        """
        case = replace(
            self.case, axes=replace(self.case.axes, batch_size_per_device=batch_size_per_device)
        )
        trial = self._launch(case, MEASURED_DIR)
        if trial.is_out_of_memory:
            self.trials += (trial,)
        return not trial.is_out_of_memory

    def finish(self) -> int:
        """Move the latest launch's files to the attempt, record last; return 0 or its exit code.

        The launch's `out` and `err` are copied to standard output and error. A failed launch that
        exited with 0 gives 1.
        """
        for path in self._latest_dir.iterdir():
            if path.name not in (CASE_FILE, RECORD_FILE, "out", "err"):
                os.replace(str(path), str(self._attempt_dir / path.name))
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            # bytes, since ranks may write invalid UTF-8
            stream.buffer.write((self._latest_dir / name).read_bytes())
            stream.flush()
        record = self.make_record()
        write_json(self._attempt_dir / RECORD_FILE, record)
        return 0 if record.status == OK else self._exit_code or 1

    def make_record(self) -> Record:
        """Return the latest launch's record, with all trials.

        A failed record gets the search's own case, without the batch size of that launch.
        """
        record = read_json(self._latest_dir / RECORD_FILE, Record)
        record = replace(record, batch_trials=self.trials)
        if record.status == OK:
            return record
        size = record.case.axes.batch_size
        smallest = min(self.case.axes.batch_ladder or (self.case.batch_size_step,))
        note = ", the smallest to try" if size == smallest else ""
        return replace(record, case=self.case, reason=f"batch size {size}{note}: {record.reason}")

    def _launch(self, case: Case, kind: str) -> BatchTrial:
        """Launch the case on all ranks once, in an emptied folder KIND/bSIZE; return the trial.

        `out` and `err` in the folder are the launcher's output. Raises FailedLaunchError, and
        SystemExit if this process received SIGTERM before the ranks had ended.
        """
        size = case.axes.batch_size
        folder = self._latest_dir = self._attempt_dir / kind / f"b{size}"
        started = time.monotonic()
        shutil.rmtree(str(folder), ignore_errors=True)
        folder.mkdir(parents=True)
        write_json(folder / CASE_FILE, case)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self._exit_code = self._child.run([*self._command, str(folder)], folder, out, err)
        record = conclude_attempt(folder, self._exit_code)
        seconds = time.monotonic() - started
        print(f"{kind}: batch size {size}: {record.status} after {seconds:.1f} s", flush=True)
        if record.status == FAILED:
            raise FailedLaunchError(record.reason)
        return BatchTrial(
            batch_size_per_device=size,
            is_out_of_memory=record.status == OUT_OF_MEMORY,
            # ranks that ran out of memory report no peak
            peak_memory_bytes=max((rank.peak_memory_bytes for rank in record.ranks), default=0),
            seconds=seconds,
        )


def get_case_dir(attempt_dir: Path) -> Path:
    """Return the folder of the case, above those of the repeat and the attempt.

    The attempt may have a folder for each execution of its job script, such as "s1".
    """
    has_start = attempt_dir.name[:1] == "s" and attempt_dir.name[1:].isdigit()
    return attempt_dir.parents[2 if has_start else 1]


def measure_as_others(search: Search, case_dir: Path) -> None:
    """Measure with the batch size that another repeat found, or find one.

    If two repeats search at the same time, the first to publish decides; the other one measures
    again if it found another batch size.
    """
    found: Optional[Record] = None
    with suppress(FileNotFoundError):
        found = read_json(case_dir / BATCH_FILE, Record)
    if found is None:
        if not find_and_measure(search):
            return
        own = search.make_record()
        found = publish_found(own, case_dir)
        if found.case.axes.batch_size == own.case.axes.batch_size:
            return
    search.trials = found.batch_trials
    search.measure(found.case.axes.batch_size)


def find_and_measure(search: Search) -> bool:
    """Measure with the largest batch size that fits, in a ladder the first; return whether any did.

    Memory may still run out in a measurement because of fragmentation: then the next smaller size
    is measured.
    """
    case = search.case
    sizes: Iterable[int]
    if case.axes.batch_ladder:
        sizes = dropwhile(lambda size: not search.fits(size), case.axes.batch_ladder)
    else:
        largest = find_largest(search.fits, case.batch_size_step, find_largest_tried(case))
        sizes = range(largest, 0, -case.batch_size_step)
    return any(search.measure(size) for size in sizes)


def find_largest_tried(case: Case) -> int:
    """Return the upper bound of the batch size per device, LARGEST_TRIED or less.

    No step of a case with data "folder" can exceed the data set. A data set that cannot be opened
    is ignored here: the ranks of the first trial report why.
    """
    if case.axes.data != FOLDER:
        return LARGEST_TRIED
    with suppress(DataError):
        samples = len(open_dataset(case, TRAIN_SPLIT))
        return min(LARGEST_TRIED, samples // (case.world_size * case.axes.gradient_accumulation))
    return LARGEST_TRIED


def find_largest(
    fits: Callable[[int], bool], granularity: int, largest_tried: int = LARGEST_TRIED
) -> int:
    """Find the largest multiple of `granularity` that fits, or 0; `fits` must be monotonic.

    Doubles from the smallest multiple until one does not fit, then bisects: about 2 * log2(answer)
    calls of `fits`, none above max(largest_tried, granularity).
    """
    fitting, too_large = 0, max(largest_tried // granularity, 1) + 1
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        multiple = min(2 * fitting or 1, middle)
        if fits(multiple * granularity):
            fitting = multiple
        else:
            too_large = multiple
    return fitting * granularity


def publish_found(record: Record, case_dir: Path) -> Record:
    """Publish this record as the one whose batch size all repeats of the case measure.

    If another repeat did so first, its record stays; returns the published one. Uses a hard link,
    which exactly one process can create, whole, even over NFS with its delayed visibility of files
    between nodes.
    """
    own = case_dir / f".{BATCH_FILE}.r{record.case.repeat}-a{record.case.attempt}.{os.getpid()}"
    write_json(own, record)
    with suppress(FileExistsError):
        os.link(str(own), str(case_dir / BATCH_FILE))
    own.unlink()
    return read_json(case_dir / BATCH_FILE, Record)
