"""A fake launcher with ranks whose memory is enough for a limited number of samples.

As a program, `limited_ranks.py SAMPLES [FOLDER=FAULT ...] DIR` writes into DIR the files that ranks
would write; in a FOLDER such as trials/b16 they fail as FAULT says, or wait for the file DIR/go.
DIR/../../launches lists the folders in which it ran.
"""

import os
import signal
import sys
import time
from pathlib import Path

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import FAILURES_DIR, RECORD_FILE, STEP_SECONDS_FILE, Failure
from support import fake_environment

# last messages of processes that end without a failure file
LAST_WORDS = {
    "killed by slurm": "slurmstepd: error: Detected 1 oom_kill event in StepId=24.0.",
    "aborted for memory": "terminate called: CUBLAS_STATUS_ALLOC_FAILED",
    "aborted": "terminate called: assertion failed",
}


def make_command(samples, *faults):
    """Return the launch command of a search, such as make_command(40, "trials/b16=crash")."""
    return [sys.executable, "-m", "support.limited_ranks", str(samples), *faults]


def list_launches(attempt_dir):
    """List the folders in the order in which ranks ran in them."""
    return (attempt_dir / "launches").read_text().split()


def run(samples, faults, folder):
    name = "/".join(folder.parts[-2:])
    with (folder.parents[1] / "launches").open("a") as file:
        file.write(name + "\n")
    case = read_json(folder / CASE_FILE, Case)
    fault = faults.get(name, "memory" if case.axes.batch_size > samples else "")
    print("ranks of", name)
    sys.stderr.buffer.write(b"ranks of %s complain: \xff\n" % name.encode())
    if fault in ("memory", "crash"):
        failure = Failure(1, "n1", "SomeError", "told to " + fault, "...", fault == "memory")
        (folder / FAILURES_DIR).mkdir()
        write_json(folder / FAILURES_DIR / "rank-1.json", failure)
        return 1
    if fault == "wait":
        (folder / "pid").write_text(str(os.getpid()))
        while not (folder / "go").exists():
            time.sleep(0.02)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault:
        print(LAST_WORDS[fault], file=sys.stderr)
        return 134
    (folder / STEP_SECONDS_FILE).write_text(name)
    write_json(folder / RECORD_FILE, fake_environment.make_record(case))
    return 0


if __name__ == "__main__":
    room, *options, last = sys.argv[1:]
    sys.exit(run(int(room), dict(option.split("=") for option in options), Path(last)))
