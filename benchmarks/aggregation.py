"""CPU seconds of `report` on a run of many records, beside `cat` and a plain pandas program.

    python benchmarks/aggregation.py /tmp/large --records 1000

The tool stages the run; its records are generated, with a throughput for each case and step times
that add up to the measured window. The figures have no meaning.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Optional

import numpy
from measuring import TOOL, Cost, measure_command
from rows import Row

from dlperf_slurm.cli import main as run_command
from dlperf_slurm.contract.case import TIME_BYTES, Case
from dlperf_slurm.contract.json_files import write_json
from dlperf_slurm.contract.record import (
    OK,
    RECORD_FILE,
    STEP_SECONDS_FILE,
    Clock,
    RankResult,
    Record,
)
from dlperf_slurm.contract.step_archive import pack_sidecars
from dlperf_slurm.files.arrays import write_array
from dlperf_slurm.jobs.case_file import read_planned_case
from dlperf_slurm.jobs.run_directory import Run, open_run

CASES = 50
# the folder of an attempt's first start
START = "s0"
MATRIX = """\
title = "Large"
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = "{topology}"
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
RECORDS = 10_000
MANY_RANKS = 4096
CAT, PLAIN, REPORT = "cat", "plain pandas", "report"
AGAIN, CHANGED = "report again", "report after one record changed"
WHY_CAT = (
    "of a record's time half goes into opening, decoding and validating its JSON and its step "
    "times, and a third into medians, percentiles and doubts; of a report of 1,000 records a fifth "
    "goes into imports, half of that pandas, and another into tables and files"
)
WHY_PLAIN = (
    "no part of it stands out any more, and the plain program checks nothing of what it reads"
)
WHY_PLOTS = (
    "a plot takes 0.04 s in matplotlib, and its import 0.5 s; drawn once in place of three times, "
    "and most placed by hand in one figure that is kept, they take half of what they took"
)


WHY_MEMORY = "of all repeats, the times are held while their percentiles are computed"
CLOCK = f"by the clock, {len(os.sched_getaffinity(0))} cores"


class Targets(NamedTuple):
    """The most that a report may take: ratios to `cat`, of the first and second, and to pandas."""

    cat: float
    again: float
    plain: Optional[float]
    mib: Optional[float]


# by number of records
TARGETS = {1000: Targets(15.0, 3.0, None, None), RECORDS: Targets(13.0, 3.0, 0.25, 400.0)}


def main() -> None:
    """Make the run if the folder has none, then measure each program in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--plots", default="none")
    options = parser.parse_args()
    run = find_run(options.folder, options.records, options.steps)
    for name, cost in measure(run, options.folder, options.plots).items():
        print(
            f"{name:32} {cost.cpu_seconds:8.2f} CPU seconds, {cost.peak_mib:6.0f} MiB", flush=True
        )


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 5; at a tenth of the records start-up dominates."""
    scale = 10 if is_quick else 1
    rows = [row for records in TARGETS for row in measure_size(records // scale, TARGETS[records])]
    return [*rows, *measure_page(), *measure_many_ranks(MANY_RANKS // scale)]


def measure_size(records: int, targets: Targets) -> list[Row]:
    """Return the rows of a run of many records: reports, beside `cat` and plain pandas."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        costs = measure(find_run(folder, records, 100), folder, "none")
    what = f"{records:,} records x 64 ranks x 100 steps"
    full = f"python benchmarks/aggregation.py /tmp/large --records {records}"
    rows = [
        Row(
            *(5, name.format(what), costs[report].cpu_seconds, "CPU s"),
            command=full,
            peer=peer,
            peer_measured=costs[peer].cpu_seconds,
            target_ratio=ratio,
            why_missed=why,
        )
        for name, report, peer, ratio, why in (
            ("report of {}: tables and CSV", REPORT, CAT, targets.cat, WHY_CAT),
            ("report of {}: tables and CSV", REPORT, PLAIN, targets.plain, WHY_PLAIN),
            ("report again ({})", AGAIN, CAT, targets.again, ""),
            ("report after one record changed ({})", CHANGED, CAT, None, ""),
        )
    ]
    clock, memory = costs[REPORT].wall_seconds, costs[REPORT].peak_mib
    rows += [
        Row(5, f"report of {what}: {name}", measured, unit, full, target, PLAIN, peer)
        for name, measured, unit, target, peer in (
            (CLOCK, clock, "s", None, costs[PLAIN].wall_seconds),
            ("most memory of a process", memory, "MiB", targets.mib, costs[PLAIN].peak_mib),
        )
    ]
    return rows


def measure_page() -> list[Row]:
    """Return the rows of a report with its page, without plots and with them."""
    with tempfile.TemporaryDirectory() as name:
        run = find_run(Path(name), 3 * CASES, 100)
        pages = {which: measure(run, Path(name), which, only=REPORT) for which in ("none", "some")}
    page = f"report of {CASES} cases x 3 repeats x 64 ranks x 100 steps, with its page"
    small = f"python benchmarks/aggregation.py /tmp/small --records {3 * CASES} --plots"
    rows = [
        Row(
            *(5, f"{page}, {what}", pages[which][REPORT].cpu_seconds, "CPU s"),
            command=f"{small} {which}",
            target=target,
            why_missed=why,
        )
        for which, what, target, why in (
            ("none", "no plots", 3.0, ""),
            ("some", "56 plots", 5.0, WHY_PLOTS),
        )
    ]
    seconds = pages["some"][REPORT].wall_seconds
    return [*rows, Row(5, f"{page}, 56 plots: {CLOCK}", seconds, "s", f"{small} some")]


def measure_many_ranks(ranks: int) -> list[Row]:
    """Return the memory of a report of 3 array tasks of many ranks, over that of the step times.

    That of a report of 3 tasks of one rank is subtracted.
    """
    steps, nodes, peaks = 1000, ranks // 8, []
    for topology in ("1n1g", f"{nodes}n8g"):
        with tempfile.TemporaryDirectory() as name:
            run = find_run(Path(name), 3, steps, 1, topology)
            peaks.append(measure(run, Path(name), "none", only=REPORT)[REPORT].peak_mib)
    times_mib = 3 * 8 * nodes * steps * TIME_BYTES / 2**20
    name = (
        f"report of 3 array tasks x {8 * nodes:,} ranks x {steps:,} steps: memory over their times"
    )
    measured = (peaks[1] - peaks[0]) / times_mib
    return [Row(5, name, measured, "x", target=2.5, why_missed=WHY_MEMORY)]


def measure(run: Run, folder: Path, plots: str, only: str = "") -> dict[str, Cost]:
    """Return the cost of each program, or only of the named one; the tool's cache starts empty."""
    path = str(run.path)
    report = [*TOOL, "report", path, "--plots", plots]
    commands = {
        CAT: make_cat(run.path / "cases"),
        PLAIN: [sys.executable, str(HERE / "plain" / "aggregate_pandas.py"), path],
        REPORT: report,
        AGAIN: report,
        CHANGED: report,
    }
    costs = {}
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for name, command in commands.items():
            if only not in ("", name):
                continue
            if name == CHANGED:
                change_one(run)
            costs[name] = measure_command(command, env={"XDG_CACHE_HOME": cache})
    return costs


def make_cat(folder: Path, name: str = "*") -> list[str]:
    """Return a command that reads all files of this name below a folder, and does nothing else."""
    find = f"find {folder} -type f -name '{name}' -print0"
    return ["bash", "-c", f"{find} | xargs -0 cat > /dev/null"]


def find_run(
    folder: Path, records: int, steps: int, cases: int = CASES, topology: str = "8n8g"
) -> Run:
    """Return the run in the folder; make one if there is none."""
    found = sorted(folder.glob("results/*/manifest.json"))
    if found:
        return open_run(found[0].parent)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = ", ".join(str(8 * (i + 1)) for i in range(min(cases, records)))
    repeats = max(1, records // cases)
    matrix, site = folder / "large.toml", folder / "site.toml"
    matrix.write_text(
        MATRIX.format(topology=topology, sizes=sizes, repeats=repeats, steps=steps),
        encoding="utf-8",
    )
    site.write_text(SITE, encoding="utf-8")
    results = folder / "results"
    code = run_command(["render", str(matrix), "--site", str(site), "--results", str(results)])
    assert code == 0
    run = open_run(next(results.iterdir()))
    random = numpy.random.default_rng(1)
    for task in run.read_all_tasks():
        fill(run.path / task.attempt_dir / START, read_planned_case(run.path, task), random)
    return run


def fill(folder: Path, case: Case, random: numpy.random.Generator) -> None:
    """Write the record of an array task, and its step times [ranks, steps]."""
    folder.mkdir(parents=True)
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
    # as a successful job does at its end
    pack_sidecars(folder, case)


def change_one(run: Run) -> None:
    """Rewrite one record, as a repeated measurement would."""
    task = next(iter(run.read_all_tasks()))
    path = run.path / task.attempt_dir / START / RECORD_FILE
    record = json.loads(path.read_text(encoding="utf-8"))
    record["ended_at"] = "2024-05-01T12:02:00Z"
    path.write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main()
