"""A run of many records: CPU seconds of `report` beside `cat`, a plain pandas program, and again.

    python benchmarks/aggregation.py /tmp/large --records 1000

The run is staged by the tool, and its records are made up: throughput of each case about its own,
step times that add up to their windows. Its figures mean nothing.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy

from dlperf_slurm.cli import main as run_command
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import (
    OK,
    RECORD_FILE,
    STEP_SECONDS_FILE,
    Clock,
    RankResult,
    Record,
)
from dlperf_slurm.files.arrays import write_array
from dlperf_slurm.jobs.run_directory import Run, open_run

CASES = 50
MATRIX = """\
title = "Large"
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = "8n8g"
batch_size_per_device = [{sizes}]
[protocol]
repeats = {repeats}
warmup_steps = 5
measured_steps = {steps}
"""
SITE = """\
scheduler = "slurm"
device = "cpu"
gpu_request = "none"
[environments.pytorch]
modules = "pytorch"
"""
HERE = Path(__file__).parent


def main() -> None:
    """Make the run where there is none, then measure each program in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plots", default="none")
    options = parser.parse_args()
    run = find_run(options.folder, options.records, options.steps)
    tool = [sys.executable, "-m", "dlperf_slurm", "report", str(run.path), "--plots", options.plots]
    plain = [sys.executable, str(HERE / "plain" / "aggregate_pandas.py"), str(run.path)]
    cat = ["bash", "-c", f"find {run.path}/cases -type f -print0 | xargs -0 cat | wc -c"]
    for name, command in (
        ("cat", cat),
        ("plain pandas", plain),
        ("report", tool),
        ("report again", tool),
        ("report after one record changed", tool),
    ):
        if name.endswith("changed"):
            change_one(run)
        wall, cpu, mib = measure(command)
        print(f"{name:32} {wall:8.2f} s, {cpu:8.2f} CPU seconds, {mib:6.0f} MiB", flush=True)


def find_run(folder: Path, records: int, steps: int) -> Run:
    """The run in the folder, made if there is none."""
    found = sorted(folder.glob("results/*/manifest.json"))
    if found:
        return open_run(found[0].parent)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = ", ".join(str(8 * (i + 1)) for i in range(min(CASES, records)))
    repeats = max(1, records // CASES)
    matrix, site = folder / "large.toml", folder / "site.toml"
    matrix.write_text(MATRIX.format(sizes=sizes, repeats=repeats, steps=steps), encoding="utf-8")
    site.write_text(SITE, encoding="utf-8")
    results = folder / "results"
    code = run_command(["render", str(matrix), "--site", str(site), "--results", str(results)])
    assert code == 0
    run = open_run(next(results.iterdir()))
    random = numpy.random.default_rng(1)
    for task in run.read_all_tasks():
        fill(run.path / task.attempt_dir, run, random)
    return run


def fill(folder: Path, run: Run, random: numpy.random.Generator) -> None:
    """Write the record of an array task, and its step times [ranks, steps]."""
    case = read_json(folder / CASE_FILE, Case)
    ranks = case.world_size
    base = 0.01 + 0.0005 * case.axes.batch_size
    seconds = base * random.normal(1, 0.02, (ranks, case.measured_steps)).clip(0.5)
    results = tuple(
        RankResult(
            rank=rank,
            local_rank=rank % case.devices_per_node,
            host=f"node{rank // case.devices_per_node + 1}",
            device_name="cpu",
            window_seconds=float(seconds[rank].sum()),
            peak_memory_bytes=1 << 30,
            final_loss=6.9,
        )
        for rank in range(ranks)
    )
    record = Record(
        status=OK,
        reason="",
        case=case,
        started_at="2024-05-01T12:00:00Z",
        ended_at="2024-05-01T12:01:00Z",
        parameter_count=25_557_032,
        clock=Clock("host", 1e-7),
        ranks=results,
        failures=(),
        versions={"torch": "2.13.0"},
        platform={"python": "3.11"},
        job={},
    )
    write_json(folder / RECORD_FILE, record)
    write_array(folder / STEP_SECONDS_FILE, seconds)


def change_one(run: Run) -> None:
    """Write one record anew, as a repeat that was made again would."""
    task = next(iter(run.read_all_tasks()))
    path = run.path / task.attempt_dir / RECORD_FILE
    record = json.loads(path.read_text(encoding="utf-8"))
    record["ended_at"] = "2024-05-01T12:02:00Z"
    path.write_text(json.dumps(record), encoding="utf-8")


def measure(command: list[str]) -> tuple[float, float, float]:
    """Wall and CPU seconds of a command, and the most memory of it or of what it started."""
    code = (
        "import resource, subprocess, sys, time\n"
        "start = time.perf_counter()\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
        "print(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, check=True
    )
    wall, cpu, mib = map(float, done.stdout.split())
    return wall, cpu, mib


if __name__ == "__main__":
    main()
