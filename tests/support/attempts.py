"""An attempt directory whose case the real worker runs, under the real mpirun of this Python."""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import RECORD_FILE, Record
from dlperf_slurm.contract.step_archive import DETAILS_FILE
from dlperf_slurm.worker.__main__ import conclude
from dlperf_slurm.worker.peaks.measure import SWITCH
from support import spin
from support.cases import vary

# `conclude` asks the adapter for its messages, and this one is only in frozen copies
sys.modules["dlperf_slurm.worker.frameworks.spin"] = spin

MPIRUN = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
LAUNCH_SECONDS = 180

CASE = Case(
    run_id="run",
    case_id="spin-bert-1n2g-bs4-fp32",
    repeat=1,
    attempt=1,
    axes=Axes(framework="spin", topology="1n2g", batch_size_per_device=4),
    model="bert",
    model_parameters={"layers": 1},
    device="cpu",
    cpus_per_rank=1,
    warmup_steps=3,
    measured_steps=10,
    seed=1,
)


class Attempt:
    """An attempt directory with a case, and the outcome of running it."""

    def __init__(self, path, code_dir, **changes):
        self.path = path
        self.code_dir = code_dir
        self.case = vary(CASE, **changes)
        self.exit_code = None
        self.seconds = 0.0
        self.stderr = ""
        path.mkdir(parents=True)
        write_json(path / CASE_FILE, self.case)

    def launch(self, **spin):
        """Run the case on all ranks of one mpirun, with SPIN_* variables; return self."""
        return self._launch([*self.make_rank_command(), str(self.path)], spin)

    def launch_alone(self, **spin):
        """Run the case as one process, without a launcher."""
        return self._launch(self._name_worker("run"), spin)

    def start(self, **spin):
        """Start the case on all ranks of one mpirun; return the process, for `finish`."""
        return subprocess.Popen(
            [*self.make_rank_command(), str(self.path)],
            cwd=str(self.path),
            env=self.make_environment(**spin),
            stderr=subprocess.PIPE,
            universal_newlines=True,
        )

    def finish(self, process):
        """Wait for a started process; return self."""
        _, self.stderr = process.communicate(timeout=LAUNCH_SECONDS)
        self.exit_code = process.returncode
        return self

    def search(self, **spin):
        """Search the case's batch size with ranks under mpirun; return self."""
        return self._launch(self.make_search_command(), spin)

    def make_rank_command(self):
        """Return the command that starts `worker run` on all ranks, without the folder."""
        return [*make_mpirun(self.case), sys.executable, "-m", "dlperf_slurm.worker", "run"]

    def make_search_command(self):
        return [*self._name_worker("search"), "--", *self.make_rank_command()]

    def conclude(self):
        """Do what the job script does after the launcher has ended; return the record.

        Packed files are unpacked again, for tests of single files.
        """
        assert conclude(self.path, self.exit_code) == 0
        unfold(self.path)
        return self.read_record()

    def read_record(self):
        return read_json(self.path / RECORD_FILE, Record)

    def read_failure(self, rank):
        return json.loads((self.path / "failures" / f"rank-{rank}.json").read_text())

    def list_pids(self):
        texts = [path.read_text() for path in sorted(self.path.glob("pid-*"))]
        # a file that was just made is empty
        return [int(text) for text in texts if text]

    def make_environment(self, **spin):
        env = make_environment(self.code_dir)
        env.update({"SPIN_" + name.upper(): str(value) for name, value in spin.items()})
        return env

    def _name_worker(self, command):
        return [sys.executable, "-m", "dlperf_slurm.worker", command, str(self.path)]

    def _launch(self, command, spin):
        started = time.monotonic()
        done = self._run(command, spin)
        self.seconds = time.monotonic() - started
        self.exit_code = done.returncode
        self.stderr = done.stderr
        return self

    def _run(self, command, spin):
        return run_ranks(command, self.path, self.make_environment(**spin), LAUNCH_SECONDS)


def run_ranks(command, folder, env, timeout):
    """Run a command to its end, and once more if MindSpore crashed; return the completed process.

    MindSpore's ranks reconnect if its scheduler answers late, as on an overloaded machine, and a
    thread of the library may then dereference a null pointer (seen in 2.10).
    """
    for _ in range(2):
        done = subprocess.run(
            command, cwd=str(folder), env=env, capture_output=True, text=True, timeout=timeout
        )
        if not ("Segmentation fault" in done.stderr and "libmindspore_cluster" in done.stderr):
            break
    return done


def make_mpirun(case):
    mpirun = [MPIRUN, "-np", str(case.world_size), "--map-by", ":OVERSUBSCRIBE"]
    return [*mpirun, "--bind-to", "none"]


def make_environment(code_dir):
    """Return the job script's environment; root may start ranks, and waiting ranks yield a core."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPIN_")}
    env["PYTHONPATH"] = str(code_dir)
    env["PYTHONUNBUFFERED"] = "1"
    for name in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM"):
        env["OMPI_" + name] = env["PRTE_" + name] = "1"
    env["OMPI_MCA_mpi_yield_when_idle"] = "1"
    # measuring peaks takes three seconds of each run, and few tests need it
    env.setdefault(SWITCH, "0")
    return env


def unfold(folder):
    """Unpack the archive of details beside it, if there is one."""
    if (folder / DETAILS_FILE).exists():
        with zipfile.ZipFile(str(folder / DETAILS_FILE)) as details:
            details.extractall(str(folder))


def await_starts(attempt):
    """Wait until all ranks have started."""
    await_that(lambda: len(attempt.list_pids()) == attempt.case.world_size, LAUNCH_SECONDS)


def await_measured_steps(attempt):
    """Wait until all ranks have taken a few steps after three of warm-up."""
    await_that(
        lambda: len([*attempt.path.glob("stepped-*")]) == attempt.case.world_size, LAUNCH_SECONDS
    )


def await_ends(attempt):
    """Wait until no rank that has started runs any more."""
    assert attempt.list_pids()
    await_that(lambda: not any(map(is_running, attempt.list_pids())), 10)


def await_that(is_so, seconds=60):
    """Poll until `is_so()`; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"did not come about in {seconds} s"
        time.sleep(0.02)


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
