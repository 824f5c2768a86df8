"""Seconds of each phase from the job script to the end of the first step, for each framework.

A small ResNet-50 on one device of this machine, by the script that a Slurm job also runs. Import
and compilation are the framework's; `script`, `python`, `ranks`, `look` and `sampler` are ours.
"""

import subprocess
import tempfile
from pathlib import Path

from measuring import CHECKOUT, TOOL
from rows import Row, print_rows

import dlperf_slurm
from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.contract.phases import TO_FIRST_STEP
from dlperf_slurm.worker.frameworks import list_frameworks

REPEATS = 3
MATRIX = """
[model]
name = "resnet50"
image_size = 32
width = 8
stage_blocks = [1, 1, 1, 1]
classes = 10
[axes]
framework = {frameworks}
topology = "1n1g"
batch_size_per_device = 4
[protocol]
repeats = {repeats}
warmup_steps = 3
measured_steps = 5
[[override]]
when = {{ framework = "jax" }}
compiler = "xla"
[[override]]
when = {{ framework = "megengine" }}
gradient_sync = "mpi"
"""
# shorter phases are summed
SHOWN_SECONDS = 0.05


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 9: a framework's whole start, with its phases in the name."""
    known = ["pytorch"] if is_quick else list_frameworks()
    there = [one for one in known if (find_managed_environment(one) / "bin" / "python").exists()]
    missing = [
        Row(
            *(9, f"{framework}: to the end of the first step", None, "s"),
            problem=f"no environment; dlperf-slurm env create {framework}",
        )
        for framework in known
        if framework not in there
    ]
    return [*measure(there, REPEATS), *missing] if there else missing


def measure(frameworks: list[str], repeats: int) -> list[Row]:
    """Return medians over the repeats in wall-clock time, which includes waiting for disks."""
    with tempfile.TemporaryDirectory() as name:
        matrix = Path(name, "starting.toml")
        matrix.write_text(MATRIX.format(frameworks=frameworks, repeats=repeats), encoding="utf-8")
        command = [*TOOL, "submit", str(matrix), "--site", "local", "--results", name, "--wait"]
        subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)
        run = dlperf_slurm.open_run(next(Path(name).glob("*/manifest.json")).parent)
        medians = run.frame("repeats").groupby("case_id").median(numeric_only=True)
    rows = []
    for case_id, values in medians.iterrows():
        phases = {phase: values[f"phase_{phase}_seconds"] for phase in TO_FIRST_STEP}
        large = {phase: s for phase, s in phases.items() if s >= SHOWN_SECONDS}
        told = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in large.items())
        rest = sum(seconds for phase, seconds in phases.items() if phase not in large)
        framework = str(case_id).partition("-")[0]
        rows.append(
            Row(
                part=9,
                name=f"{framework}: {told}, all else {rest:.2f}",
                measured=values["to_first_step_seconds"],
                unit="s",
            )
        )
    return rows


if __name__ == "__main__":
    print_rows(measure_rows)
