"""A case whose batch size is to be found -> trials in fresh processes, then its record."""

import os
import shutil
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional, Sequence, Tuple

from dlperf_slurm.contract.axes import FOLDER
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import FAILED, OK, OUT_OF_MEMORY, RECORD_FILE, BatchTrial, Record
from dlperf_slurm.worker.datasets import open_dataset
from dlperf_slurm.worker.datasets.description import TRAIN_SPLIT, DataError
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.processes import Child

BATCH_FILE = "batch.json"
TRIALS_DIR = "trials"
MEASURED_DIR = "measured"

# Optimizer states are made at the end of the first step, and a compiler may begin anew when it
# meets them: the second step is the first one like all others, the third shows that it repeats.
TRIAL_WARMUP_STEPS = 1
TRIAL_MEASURED_STEPS = 2

# where a search ends that neither memory nor data end: per device, above any batch that is worth
# measuring
LARGEST_TRIED = 2**16


class FailedLaunchError(RuntimeError):
    """Ranks failed for another reason than memory, which says nothing about the batch size."""


def search_batch_size(attempt_dir: Path, launch_command: Sequence[str]) -> int:
    """Find the batch size of this attempt's case, measure with it and write the record.

    Runs on one process without MPI, in the launcher's place. All repeats of a case measure the
    same batch size, that of the first to have a record. Returns the exit code: 0, or that of the
    launch that failed.
    """
    search = Search(attempt_dir, TrialRunner(launch_command))
    with suppress(FailedLaunchError):
        measure_as_others(search, case_dir=find_case_dir(attempt_dir))
    return search.finish()


class TrialRunner:
    """Starts the ranks of one case after the other; SIGTERM ends them, and then this process.

    `exit_code` is that of the latest run.
    """

    def __init__(self, command: Sequence[str]) -> None:
        """`command` starts `worker run` on all ranks; the folder is added to it."""
        self._command = list(command)
        self._child = Child()
        self.exit_code = 0

    def run(self, case: Case, folder: Path) -> Record:
        """Run a case, and read how it ended.

        What the folder held before is gone; out and err in it are the launcher's. Raises
        SystemExit when this process was told to end before the ranks had.
        """
        shutil.rmtree(str(folder), ignore_errors=True)
        folder.mkdir(parents=True)
        write_json(folder / CASE_FILE, case)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.exit_code = self._child.run([*self._command, str(folder)], folder, out, err)
        conclude_attempt(folder, self.exit_code)
        return read_json(folder / RECORD_FILE, Record)


class Search:
    """One attempt: the batch sizes that were tried, and where the latest was."""

    def __init__(self, attempt_dir: Path, runner: TrialRunner) -> None:
        self.case = read_json(attempt_dir / CASE_FILE, Case)
        self.trials: Tuple[BatchTrial, ...] = ()
        self._attempt_dir = attempt_dir
        self._latest_dir = attempt_dir
        self._runner = runner

    def fits(self, batch_size_per_device: int) -> bool:
        """Whether a few steps run; raises FailedLaunchError when not memory ended them."""
        case = replace(
            self.case,
            axes=replace(self.case.axes, batch_size_per_device=batch_size_per_device),
            warmup_steps=TRIAL_WARMUP_STEPS,
            measured_steps=TRIAL_MEASURED_STEPS,
        )
        trial = self._launch(case, TRIALS_DIR)
        self.trials += (trial,)
        return not trial.is_out_of_memory

    def measure(self, batch_size_per_device: int) -> bool:
        """Whether all steps run, as in `fits`; out of memory now counts as a trial too."""
        case = replace(
            self.case, axes=replace(self.case.axes, batch_size_per_device=batch_size_per_device)
        )
        trial = self._launch(case, MEASURED_DIR)
        if trial.is_out_of_memory:
            self.trials += (trial,)
        return not trial.is_out_of_memory

    def finish(self) -> int:
        """Give the attempt what the latest launch left, the record last; returns the exit code."""
        for path in self._latest_dir.iterdir():
            if path.name not in (CASE_FILE, RECORD_FILE, "out", "err"):
                os.replace(str(path), str(self._attempt_dir / path.name))
        for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
            # bytes: ranks may write what is no text
            stream.buffer.write((self._latest_dir / name).read_bytes())
            stream.flush()
        record = self.make_record()
        write_json(self._attempt_dir / RECORD_FILE, record)
        return 0 if record.status == OK else self._runner.exit_code or 1

    def make_record(self) -> Record:
        """The latest launch's, with all trials; of a failed one as the case was asked for."""
        record = read_json(self._latest_dir / RECORD_FILE, Record)
        record = replace(record, batch_trials=self.trials)
        if record.status == OK:
            return record
        size = record.case.axes.batch_size
        smallest = min(self.case.axes.batch_ladder or (self.case.batch_size_step,))
        note = ", the smallest" if size == smallest else ""
        return replace(record, case=self.case, reason=f"batch size {size}{note}: {record.reason}")

    def _launch(self, case: Case, kind: str) -> BatchTrial:
        size = case.axes.batch_size
        self._latest_dir = self._attempt_dir / kind / f"b{size}"
        started = time.monotonic()
        record = self._runner.run(case, self._latest_dir)
        seconds = time.monotonic() - started
        print(f"{kind}: batch size {size}: {record.status} after {seconds:.1f} s", flush=True)
        if record.status == FAILED:
            raise FailedLaunchError(record.reason)
        return BatchTrial(
            batch_size_per_device=size,
            is_out_of_memory=record.status == OUT_OF_MEMORY,
            # ranks that ran out of memory do not tell
            peak_memory_bytes=max((rank.peak_memory_bytes for rank in record.ranks), default=0),
            seconds=seconds,
        )


def find_case_dir(attempt_dir: Path) -> Path:
    """The folder of the case: above its repeat, its attempt and, in the latter, its start."""
    has_start = attempt_dir.name[:1] == "s" and attempt_dir.name[1:].isdigit()
    return attempt_dir.parents[2 if has_start else 1]


def measure_as_others(search: Search, case_dir: Path) -> None:
    """Measure with the batch size that another repeat found, or find one.

    Of two that find one at once the first decides, and the other measures again if it must.
    """
    found = read_found(case_dir)
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
    """Measure with the largest batch size that fits in a trial and in all steps, if there is one.

    Memory may still run out in a measurement, as it gets fragmented: then the next smaller size
    is measured.
    """
    case = search.case
    sizes: Sequence[int]
    if case.axes.batch_ladder:
        sizes = list_fitting(search.fits, case.axes.batch_ladder)
    else:
        largest = find_largest(search.fits, case.batch_size_step, find_largest_tried(case))
        sizes = range(largest, 0, -case.batch_size_step)
    return any(search.measure(size) for size in sizes)


def find_largest_tried(case: Case) -> int:
    """Where the case's search ends at the latest: no step can take more than its data set has.

    Of a data set that cannot be opened the ranks of the first trial say why.
    """
    if case.axes.data != FOLDER:
        return LARGEST_TRIED
    with suppress(DataError):
        samples = len(open_dataset(case, TRAIN_SPLIT))
        return min(LARGEST_TRIED, samples // (case.world_size * case.axes.gradient_accumulation))
    return LARGEST_TRIED


def list_fitting(fits: Callable[[int], bool], ladder: Sequence[int]) -> Sequence[int]:
    """The part of a ladder, from the largest size down, that begins with the first one to fit."""
    first = next((index for index, size in enumerate(ladder) if fits(size)), len(ladder))
    return ladder[first:]


def find_largest(
    fits: Callable[[int], bool], granularity: int, largest_tried: int = LARGEST_TRIED
) -> int:
    """The largest multiple of `granularity` that fits, or 0: if one fits, all smaller ones do.

    Doubles from the smallest until one does not fit, then bisects: about twice the binary
    logarithm of the answer in calls of `fits`, none of them above the larger of `largest_tried`
    and `granularity`.
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


def read_found(case_dir: Path) -> Optional[Record]:
    """The record of the repeat that found the case's batch size, if one has."""
    try:
        return read_json(case_dir / BATCH_FILE, Record)
    except FileNotFoundError:
        return None


def publish_found(record: Record, case_dir: Path) -> Record:
    """Become the repeat that found the batch size, if it is the first; returns that one's record.

    A hard link is made on the server, whole and by one only, also where nodes share the folder by
    NFS and see each other's files late.
    """
    own = case_dir / f".{BATCH_FILE}.r{record.case.repeat}-a{record.case.attempt}.{os.getpid()}"
    write_json(own, record)
    with suppress(FileExistsError):
        os.link(str(own), str(case_dir / BATCH_FILE))
    own.unlink()
    return read_json(case_dir / BATCH_FILE, Record)
