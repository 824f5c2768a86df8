"""Run directories for the tests of histories: two cases, seven repeats, a run a day."""

import dataclasses
import shutil
from pathlib import Path

from builders import make_failed_record, make_site, read_case, write_matrix, write_record
from test_compare_cli import MATRIX, make_run

from dlperf_slurm.cases import expand_matrix
from dlperf_slurm.matrix import read_matrix
from dlperf_slurm.plan import make_plan
from dlperf_slurm.run import CODE_DIR, MANIFEST_FILE, format_manifest, open_run
from dlperf_slurm.site import LoadedSite
from dlperf_slurm.stage import stage_run

RESULTS = Path("results")
CASE_1 = "pytorch-resnet50-1n1g-bs8-fp32"
CASE_2 = "pytorch-resnet50-1n2g-bs8-fp32"


def stage_seven(folder):
    """A run without records, and without its code, of which nobody here makes copies."""
    file = read_matrix(write_matrix(MATRIX, folder / "matrix.toml"))
    site = make_site()
    plan = make_plan(expand_matrix(file), site, max_array_size=1001)
    path = stage_run(folder, file, LoadedSite("tiny", site, {}), plan, ["dlperf-slurm"]).path
    shutil.rmtree(path / CODE_DIR)
    return path


def add_run(staged, day, factor=1.0, results=RESULTS, **options):
    """A run of that day of May, whose figures are these times the rates."""
    results.mkdir(exist_ok=True)
    run_id = f"202405{day:02}-120000-seven-tiny-abcd"
    path = results / run_id
    make_run(staged, path, factor, **options)
    set_manifest(path, run_id=run_id, created_at=f"2024-05-{day:02}T12:00:00Z")
    return path


def set_manifest(path, **changes):
    manifest = dataclasses.replace(open_run(path).manifest, **changes)
    (path / MANIFEST_FILE).write_text(format_manifest(manifest), encoding="utf-8")


def fail_case(path, case_id, reason="rank 1 on node1: ValueError: x"):
    run = open_run(path)
    for task in run.read_all_tasks():
        if task.case_id == case_id:
            write_record(run, task, make_failed_record(read_case(run, task), reason=reason))
