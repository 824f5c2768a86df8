"""A case under a profiler, after its measurement under real MPI."""

import gzip
import json
import os
import subprocess
import sys

import pytest
from support import attempts

from dlperf_slurm.contract.case import FOLDER_MARK
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import OK, RECORD_FILE, Record
from dlperf_slurm.worker.profiled_attempt import MOST_STEPS

pytestmark = pytest.mark.integration

STEPS = MOST_STEPS + 5
WORKER = [sys.executable, "-m", "dlperf_slurm.worker"]


@pytest.fixture
def run_profiled(tmp_path, code_dir, mpi):
    """Return a function that measures a case of two ranks, then runs it under a profiler."""

    def run(tool, *ranks):
        attempt = attempts.Attempt(tmp_path / "a1", code_dir, measured_steps=STEPS)
        measure = attempt.make_rank_command()
        profile = [*attempts.make_mpirun(attempt.case), *ranks]
        count = str(len(measure))
        words = [*WORKER, "profile", str(attempt.path), tool, count, *measure, *profile]
        env = {**attempt.make_environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(
            words, cwd=str(attempt.path), env=env, capture_output=True, text=True, timeout=180
        )
        record = attempt.read_record()
        assert (done.returncode, record.status) == (0, OK), done.stderr
        assert record.steps == STEPS
        return attempt.path / f"profile-{tool}", done.stderr

    return run


def test_profiler_wraps_each_rank_and_takes_fewer_steps(tmp_path, run_profiled):
    nsys = tmp_path / "nsys"
    nsys.write_text('#!/bin/sh\necho traced > "$1/nsys-$$"; shift; exec "$@"\n')
    nsys.chmod(0o755)
    folder, _ = run_profiled("nsys", "nsys", FOLDER_MARK, *WORKER, "run")
    assert len(list(folder.glob("nsys-*"))) == 2
    record = read_json(folder / RECORD_FILE, Record)
    assert (record.status, record.steps) == (OK, MOST_STEPS)


def test_profiler_that_fails_leaves_the_measurement_and_a_line(run_profiled):
    folder, error = run_profiled("rocprof", "/nowhere/rocprofv3", *WORKER, "run")
    assert read_json(folder / RECORD_FILE, Record).status != OK
    assert f"see {folder}" in error


def test_torch_traces_the_measured_steps_of_each_rank(torch, run_profiled):
    folder, error = run_profiled("torch", *WORKER, "trace")
    assert read_json(folder / RECORD_FILE, Record).status == OK, error
    for rank in (0, 1):
        with gzip.open(folder / f"trace-rank-{rank}.json.gz", "rt") as trace:
            assert json.load(trace)["traceEvents"]
