"""CPU seconds, memory and files of staging a matrix of many cases.

Expand, plan, render and stage run in a fresh process. The start-up, measured with a matrix of one
array task, is subtracted. `--profile cumulative` prints a profile of the largest matrix instead.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import Row, print_rows

# array tasks, and the repeats of each case
SIZES = ((1000, 10), (10_000, 10), (70_000, 7), (100_000, 10))
# targets for the largest matrix, without start-up
MAX_CPU_SECONDS = 3.0
MAX_MIB = 150.0
WHY_MISSED = (
    "Each case is planned, checked and written once, and its repeats are lines of a table: what is "
    "left is the expansion of the matrix and the case ids."
)

STAGE = """
import json, resource, sys
from pathlib import Path
from dlperf_slurm.config.site import load_site
from dlperf_slurm.jobs import disk_space
from dlperf_slurm.jobs.plan import PlannedMatrix, resolve
from dlperf_slurm.jobs.stage import stage_run
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix

# the disk here need not have room for what none of them will write
disk_space.check_free = lambda folder, needed_bytes: None

def stage():
    file = read_matrix(Path("matrix.toml"))
    loaded = load_site("site.toml", None, [])
    plan = resolve(expand_matrix(file), loaded.site, 1001)
    stage_run(Path("results"), PlannedMatrix(file, loaded, plan), ["submit", "matrix.toml"])

if "--profile" in sys.argv:
    import cProfile, pstats
    profile = cProfile.Profile()
    profile.runcall(stage)
    pstats.Stats(profile).sort_stats(sys.argv[-1]).print_stats(40)
else:
    stage()
    own = resource.getrusage(resource.RUSAGE_SELF)
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
    print(json.dumps({"cpu_seconds": seconds, "peak_mib": own.ru_maxrss / 1024}))
"""

MATRIX = """
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = "1n1g"
batch_size_per_device = {batch_sizes}
gradient_accumulation = {accumulations}
[protocol]
repeats = {repeats}
"""

SITE = """
device = "cpu"
gpu_request = "none"
[environments.pytorch]
modules = ["pytorch"]
"""


def stage(cases: int, repeats: int, *options: str) -> dict[str, float]:
    """Return the CPU seconds, peak MiB, files and folders of staging in a fresh process.

    With options it prints its profile, and returns {}.
    """
    checkout = str(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # an axis has at most 1,000 values
        accumulations = list(range(1, min(cases, 10) + 1))
        batch_sizes = list(range(1, cases // len(accumulations) + 1))
        matrix = MATRIX.format(
            batch_sizes=batch_sizes, accumulations=accumulations, repeats=repeats
        )
        (folder / "matrix.toml").write_text(matrix)
        (folder / "site.toml").write_text(SITE)
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", STAGE, *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": checkout},
            stdout=None if options else subprocess.PIPE,
            text=True,
            check=True,
        )
        if options:
            return {}
        figures: dict[str, float] = json.loads(done.stdout)
        found = [path.is_dir() for path in (folder / "results").rglob("*")]
        return {**figures, "files": found.count(False), "folders": found.count(True)}


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the figures of each size, less those of one array task."""
    rows = []
    start = stage(1, 1)
    for size, repeats in SIZES:
        is_largest = size == max(SIZES)[0]
        tasks = size // 10 if is_quick else size
        figures = stage(tasks // repeats, repeats)
        more = {name: figures[name] - start[name] for name in figures}
        name = f"{tasks:,} array tasks of {tasks // repeats:,} cases staged, beyond one"
        rows += [
            Row(
                part=2,
                name=name,
                measured=more["cpu_seconds"],
                unit="CPU s",
                target=MAX_CPU_SECONDS if is_largest else None,
                why_missed=WHY_MISSED,
            ),
            Row(
                part=2,
                name=f"{name}: memory",
                measured=more["peak_mib"],
                unit="MiB",
                target=MAX_MIB if is_largest else None,
                why_missed=WHY_MISSED,
            ),
            Row(part=1, name=f"{name}: files", measured=more["files"], unit=""),
            Row(part=1, name=f"{name}: folders", measured=more["folders"], unit="", target=0),
        ]
    return rows


def main() -> None:
    """Print the rows, or the profile of the largest matrix."""
    if "--profile" in sys.argv:
        size, repeats = max(SIZES)
        stage(size // repeats, repeats, *sys.argv[1:])
        return
    print_rows(measure_rows)


if __name__ == "__main__":
    main()
