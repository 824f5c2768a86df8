"""A case -> its measurement, then a few of its steps once more with a profiler, in no figure."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, List, Optional, Sequence

from dlperf_slurm.contract.case import CASE_FILE, FOLDER_MARK
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import OK, RECORD_FILE, Record
from dlperf_slurm.files import FileProblem
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.processes import CommandRunner

# a trace of many steps is too large to look at
MOST_STEPS = 20


def run_profiled(attempt_dir: Path, tool: str, measure: Sequence[str], profile: List[str]) -> int:
    """Run the launcher's command `measure`, then `profile`; return the exit code of the former.

    Each gets the folder of its case as last argument. `profile`, a command with the profiler
    `tool`, runs only after a success: a few steps again, in the folder profile-TOOL, whose path
    replaces FOLDER_MARK in it. Its failure is one line on standard error.
    """
    child = CommandRunner()
    out, err = sys.stdout.buffer, sys.stderr.buffer
    exit_code = child.run([*measure, str(attempt_dir)], attempt_dir, out, err)
    try:
        record: Optional[Record] = read_json(attempt_dir / RECORD_FILE, Record)
    except (FileNotFoundError, FileProblem):
        record = None
    if record is None or record.status != OK:
        return exit_code
    folder = attempt_dir / f"profile-{tool}"
    folder.mkdir()
    steps = min(record.case.measured_steps, MOST_STEPS)
    case = replace(record.case, measured_steps=steps, min_measured_seconds=0.0)
    write_json(folder / CASE_FILE, case)
    command = [word.replace(FOLDER_MARK, str(folder)) for word in profile]
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        code = child.run([*command, str(folder)], folder, out, err)
    profiled = conclude_attempt(folder, code)
    if profiled.status != OK:
        print(f"the profiled run failed: {profiled.reason}; see {folder}", file=sys.stderr)
    return exit_code


class TorchTrace:
    """A trace of the measured steps by torch.profiler; call `start` and `stop` at their ends."""

    def __init__(self, folder: Path, rank: int) -> None:
        from torch.profiler import profile

        self._path = folder / f"trace-rank-{rank}.json.gz"
        self._profiler: Any = profile()

    def start(self) -> None:
        """Begin to record, before the first step."""
        self._profiler.start()

    def stop(self) -> None:
        """Write trace-rank-N.json.gz for Perfetto or chrome://tracing, after the last step."""
        self._profiler.stop()
        partial = self._path.with_name(f".{os.getpid()}-{self._path.name}")
        self._profiler.export_chrome_trace(str(partial))
        os.replace(str(partial), str(self._path))
