"""Ranks without MPI: started as by srun, or by torchrun."""

import subprocess
import sys
import time

from dlperf_slurm.worker.rendezvous.communicators import SECRET_VARIABLE

TASKS_SECONDS = 120
SECRET = "5e" * 32


class Tasks:
    """The processes of an attempt; the end of one does not end the others."""

    def __init__(self, attempt, job_id, **spin):
        """Start the processes; `job_id` must be unique among concurrent launches."""
        self._attempt = attempt
        self._started = time.monotonic()
        self.processes = [
            subprocess.Popen(
                [*name_worker("slurm"), str(attempt.path)],
                cwd=str(attempt.path),
                env={
                    **make_environment(attempt, **spin),
                    **make_task_variables(rank, attempt.case.world_size, job_id),
                },
                stderr=subprocess.PIPE,
                universal_newlines=True,
            )
            for rank in range(attempt.case.world_size)
        ]

    def wait(self):
        """Wait until all have ended; return the attempt."""
        errors = [process.communicate(timeout=TASKS_SECONDS)[1] for process in self.processes]
        self._attempt.stderr = "".join(errors)
        self._attempt.seconds = time.monotonic() - self._started
        # exit code of a shell for a process that a signal ended
        codes = [x.returncode if x.returncode >= 0 else 128 - x.returncode for x in self.processes]
        self._attempt.exit_code = max(codes)
        return self._attempt


def run_tasks(attempt, job_id, **spin):
    """Run the case as two tasks of one step of srun; return the attempt."""
    return Tasks(attempt, job_id, **spin).wait()


def make_task_variables(rank, size, job_id):
    """Return the variables that srun sets for a task of a step on one node."""
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_JOB_ID": job_id,
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_STEP_NODELIST": "no-such-host",
    }


def run_torchrun(attempt, **spin):
    """Run the case with the torchrun of this Python; return the attempt."""
    started = time.monotonic()
    process = start_torchrun(attempt, **spin)
    _, attempt.stderr = process.communicate(timeout=TASKS_SECONDS)
    attempt.seconds = time.monotonic() - started
    attempt.exit_code = process.returncode
    return attempt


def start_torchrun(attempt, **spin):
    """Start the case with the torchrun of this Python, as the job script does."""
    ranks = f"--nproc-per-node={attempt.case.world_size}"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", ranks]
    return subprocess.Popen(
        [*torchrun, "--no-python", *name_worker("torchrun"), str(attempt.path)],
        cwd=str(attempt.path),
        env={
            **make_environment(attempt, **spin),
            "PET_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )


def name_worker(ranks):
    return [sys.executable, "-m", "dlperf_slurm.worker", "run", f"--ranks={ranks}"]


def make_environment(attempt, **spin):
    """Return the attempt's environment, without variables of a launcher of these tests."""
    env = attempt.make_environment(**spin)
    left_out = ("SLURM_", "PMI", "RANK", "WORLD_SIZE", "MASTER_")
    env = {name: value for name, value in env.items() if not name.startswith(left_out)}
    return {**env, SECRET_VARIABLE: SECRET}


def forbid_mpi(code_dir):
    """Make `import mpi4py` fail with this frozen code, as in an image without it."""
    text = 'raise ImportError("there is no mpi4py here")\n'
    (code_dir / "mpi4py.py").write_text(text, encoding="utf-8")


def describe_shape(value):
    """Return the names and types in a record, except those that launchers and MPI add."""
    if isinstance(value, dict):
        return {
            name: describe_shape(item)
            for name, item in value.items()
            if name not in ("job", "libraries") and not name.startswith("env.")
        }
    if isinstance(value, (list, tuple)):
        return [describe_shape(item) for item in value]
    return type(value).__name__
