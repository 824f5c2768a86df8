"""A fake framework environment, without MPI and a framework, for real job scripts.

As a program, `fake_environment.py -m dlperf_slurm.worker run|search|conclude DIR ...` replaces the
worker, in one process; `DIR/behaviour` selects another outcome than a valid record. DIR/log records
when it ran. Its ranks need 1 MiB for each sample.
"""

import os
import shlex
import sys
import time
from pathlib import Path

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import (
    FAILURES_DIR,
    OK,
    RECORD_FILE,
    Clock,
    Failure,
    RankResult,
    Record,
)
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.worker.failed_record import conclude_attempt
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.search import search_batch_size

# drops the launcher's options, as the fake is one process for any topology
MPIRUN = """\
#!/bin/bash
while [ "$1" != python ]; do shift; done
exec "$@"
"""
BYTES_PER_SAMPLE = 2**20
FILLER = "filler"
BEHAVIOURS = ("crash", "killed", "hang", "nap")


def make_venv(folder: Path) -> Path:
    """Make a fake virtual environment whose python is this program."""
    bin_dir = folder / "bin"
    bin_dir.mkdir(parents=True)
    python = f'#!/bin/bash\nexec {shlex.join([sys.executable, __file__])} "$@"\n'
    for name, text in (("python", python), ("mpirun", MPIRUN)):
        (bin_dir / name).write_text(text, encoding="utf-8")
        (bin_dir / name).chmod(0o755)
    return folder


def choose_behaviour(attempt_dir: Path, behaviour: str) -> None:
    assert behaviour in BEHAVIOURS
    (attempt_dir / "behaviour").write_text(behaviour, encoding="utf-8")


def choose_filler(attempt_dir: Path, disk: Path, free_bytes: int) -> None:
    """Make the attempt fill a disk up to `free_bytes` just before it ends."""
    (attempt_dir / FILLER).write_text(f"{free_bytes} {disk}", encoding="utf-8")


def count_starts(attempt_dir: Path) -> int:
    return read_log(attempt_dir).count("start")


def read_log(attempt_dir: Path) -> str:
    """Return the logs of this folder and of the starts in it, concatenated."""
    paths = [attempt_dir / "log", *sorted(attempt_dir.glob("s*/log"))]
    return "".join(path.read_text(encoding="utf-8") for path in paths if path.exists())


def fill_disk(folder: Path, free_bytes: int = 0) -> None:
    """Fill the disk with a file FILLER in the folder, up to `free_bytes`."""
    status = os.statvfs(folder)
    with (folder / FILLER).open("wb") as file:
        file.write(bytes(max(0, status.f_bavail * status.f_frsize - free_bytes)))


def conclude(attempt_dir: Path, exit_code: int) -> None:
    conclude_attempt(attempt_dir, exit_code)
    filler = attempt_dir / FILLER
    if filler.exists():
        free_bytes, disk = filler.read_text(encoding="utf-8").split(" ", 1)
        fill_disk(Path(disk), int(free_bytes))


def run(attempt_dir: Path) -> int:
    write_log(attempt_dir, "start")
    path = attempt_dir / "behaviour"
    behaviour = path.read_text(encoding="utf-8") if path.exists() else ""
    if behaviour == "crash":
        return 1
    if behaviour == "killed":
        return 137
    if behaviour == "hang":
        (attempt_dir / "pid").write_text(str(os.getpid()), encoding="ascii")
        time.sleep(600)
    if behaviour == "nap":
        time.sleep(0.2)
    case = read_json(attempt_dir / CASE_FILE, Case)
    if 0 < case.memory_limit_bytes < case.axes.batch_size * BYTES_PER_SAMPLE:
        (attempt_dir / FAILURES_DIR).mkdir()
        failure = Failure(0, "n1", "MemoryError", "above the limit", "...", True)
        write_json(attempt_dir / FAILURES_DIR / "rank-0.json", failure)
        return 1
    write_json(attempt_dir / RECORD_FILE, make_record(case))
    write_log(attempt_dir, "end")
    return 0


def write_log(attempt_dir: Path, what: str) -> None:
    with (attempt_dir / "log").open("a", encoding="utf-8") as file:
        file.write(f"{what} {time.monotonic()}\n")


def make_record(case: Case) -> Record:
    """Return the record of a successful run."""
    ranks = tuple(
        RankResult(
            rank=rank,
            local_rank=rank % case.devices_per_node,
            host=f"n{rank // case.devices_per_node + 1}",
            device_name="stand-in",
            window_seconds=1.0,
            peak_memory_bytes=case.axes.batch_size * BYTES_PER_SAMPLE,
            final_loss=1.0,
        )
        for rank in range(case.world_size)
    )
    now = format_now()
    count = load_model(case.model).Definition(**case.model_parameters).parameter_count
    return Record(OK, "", case, now, now, count, Clock("host", 1e-6), ranks, (), {}, {}, {})


if __name__ == "__main__":
    command, folder, *rest = sys.argv[3:]
    if command == "conclude":
        conclude(Path(folder), int(rest[0]))
    elif command == "search":
        sys.exit(search_batch_size(Path(folder), rest[1:]))
    else:
        sys.exit(run(Path(folder)))
