"""A case -> its record, by ranks that are started anew in a folder of its own."""

import shutil
from pathlib import Path
from typing import Sequence

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import RECORD_FILE, Record
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.processes import Child


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
