"""Run directories for the tests of histories: two cases, seven repeats, a run a day."""

import dataclasses
import shutil
from operator import methodcaller
from pathlib import Path

import numpy
from builders import (
    find_start_dir,
    make_failed_record,
    make_record,
    make_site,
    read_case,
    rewrite_cases,
    write_matrix,
    write_record,
)
from outcome_builders import RATES

from dlperf_slurm.config.site import LoadedSite
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import RECORD_FILE, STEP_SECONDS_FILE, Record
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, format_manifest
from dlperf_slurm.jobs.plan import PlannedMatrix, resolve
from dlperf_slurm.jobs.run_directory import CODE_DIR, open_run
from dlperf_slurm.jobs.stage import stage_run
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix

MATRIX = """\
title = "Seven"
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = ["1n1g", "1n2g"]
batch_size_per_device = 8
[protocol]
repeats = 7
warmup_steps = 3
measured_steps = 10
"""
RESULTS = Path("results")
CASE_1 = "pytorch-resnet50-1n1g-bs8-fp32"
CASE_2 = "pytorch-resnet50-1n2g-bs8-fp32"


def make_run(staged, name, factor=1.0, repeats=7, topologies=("1n1g", "1n2g"), **changes):
    """Copy the run, with the rates multiplied by a factor."""
    run = open_run(Path(shutil.copytree(staged, name)))
    for task in run.read_all_tasks():
        case = read_case(run, task)
        if task.repeat <= repeats and f"1n{case.world_size}g" in topologies:
            window = 1 / (factor * RATES[task.repeat - 1])
            write_record(run, task, make_record(case, window, **changes))
    return name


def stage_seven(folder):
    """Stage a run without records, and without its code, to make copies smaller."""
    file = read_matrix(write_matrix(MATRIX, folder / "matrix.toml"))
    site = make_site()
    plan = resolve(expand_matrix(file), site, max_array_size=1001)
    path = stage_run(
        folder, PlannedMatrix(file, LoadedSite("tiny", site, {}), plan), ["dlperf-slurm"]
    ).path
    shutil.rmtree(path / CODE_DIR)
    return path


def add_run(staged, day, factor=1.0, results=RESULTS, **options):
    """Add a run of this day of May, with the rates multiplied by a factor."""
    results.mkdir(exist_ok=True)
    run_id = f"202405{day:02}-120000-seven-tiny-abcd"
    path = results / run_id
    make_run(staged, path, factor, **options)
    set_manifest(path, run_id=run_id, created_at=f"2024-05-{day:02}T12:00:00Z")
    return path


def set_manifest(path, **changes):
    """Change the manifest; a new run_id is also written to all cases and records."""
    before = open_run(path).manifest
    manifest = dataclasses.replace(before, **changes)
    if manifest.run_id != before.run_id:
        rename = methodcaller("replace", before.run_id, manifest.run_id)
        rewrite_cases(path, lambda _, line: rename(line))
        for file in path.glob("cases/*/r*/a*/s*/*.json"):
            file.write_text(rename(file.read_text(encoding="utf-8")), encoding="utf-8")
    (path / MANIFEST_FILE).write_text(format_manifest(manifest), encoding="utf-8")


def write_step_seconds(path):
    """Write step times [ranks, steps] that add up to each record's window; steps get slower."""
    run = open_run(path)
    for task in run.read_all_tasks():
        folder = find_start_dir(run, task)
        record = read_json(folder / RECORD_FILE, Record)
        shape = len(record.ranks), record.case.measured_steps
        seconds = numpy.ones(shape) * numpy.linspace(0.9, 1.1, shape[1])
        numpy.save(folder / STEP_SECONDS_FILE, seconds * record.ranks[0].window_seconds / shape[1])


def fail_case(path, case_id, reason="rank 1 on node1: ValueError: x"):
    run = open_run(path)
    for task in run.read_all_tasks():
        if task.case_id == case_id:
            write_record(run, task, make_failed_record(read_case(run, task), reason=reason))
