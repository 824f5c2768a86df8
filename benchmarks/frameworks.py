"""The ratio of our full-size training step to one in a plain script of the framework.

    python benchmarks/frameworks.py [FRAMEWORK ...]     all; `make bench` measures PyTorch alone

ResNet-50 v1.5, 224 x 224, batch size 2, fp32, two threads, in the framework's environment of `env
create`. The plain scripts are in benchmarks/plain/; ours runs as an array task of one rank. Both
alternate, so that a drift of the machine affects both.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rows import Row

from dlperf_slurm.config.folders import find_managed_environment
from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.record import RECORD_FILE, Record
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter

CHECKOUT = Path(__file__).resolve().parents[1]
PLAIN = CHECKOUT / "benchmarks" / "plain"
# as a user would write the plain script: without a compiler where that is optional
COMPILERS = {"jax": "xla"}
# frameworks whose plain script uses this image layout
MEMORY_FORMATS = {"jax": "channels_last"}
PAIRS = 3
WARMUP_STEPS = 2
MEASURED_STEPS = 6
THREADS = 2
# as torchrun starts a rank: the environment of a public script has no MPI
ONE_RANK = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


def main() -> None:
    """Print a line per framework."""
    for framework in sys.argv[1:] or list_frameworks():
        print(measure_framework(framework, PAIRS), flush=True)


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the row of PyTorch alone, as the others take minutes each."""
    return [measure_framework("pytorch", 1 if is_quick else PAIRS)]


def measure_framework(framework: str, pairs: int) -> Row:
    """Return the median times of a step, and the range of their ratio over the pairs."""
    name = f"{framework}: a training step of ResNet-50, beside a plain script"
    python = find_managed_environment(framework) / "bin" / "python"
    if not python.exists():
        problem = f"no environment; dlperf-slurm env create {framework}"
        return Row(part=8, name=name, measured=None, unit="ms", problem=problem)
    script = [str(python), str(PLAIN / f"resnet50_{framework}.py")]
    row = measure_pairs(make_case(framework), python, script, pairs)
    return replace(
        row,
        name=f"{name}; {row.name}",
        command=f"python benchmarks/frameworks.py {framework}",
        peer="plain script",
    )


def measure_pairs(case: Case, python: Path, script: list[str], pairs: int) -> Row:
    """Time a case's step by `python` and the script's in turn; name the row after their ratios.

    The script takes the number of steps as its last argument.
    """
    times = [(time_ours(case, python), time_script(script)) for _ in range(pairs)]
    ratios = [ours / plain for ours, plain in times]
    ours, plain = (1000 * statistics.median(side) for side in zip(*times))
    return Row(
        part=8,
        name=f"ratios of {pairs} pairs {min(ratios):.2f} to {max(ratios):.2f}",
        measured=ours,
        unit="ms",
        peer_measured=plain,
    )


def time_ours(case: Case, python: Path) -> float:
    """Return the mean seconds of a measured step, from the worker's record."""
    with tempfile.TemporaryDirectory() as folder:
        write_json(Path(folder, CASE_FILE), case)
        worker = [str(python), "-m", "dlperf_slurm.worker"]
        run([*worker, "run", "--ranks=torchrun", folder])
        run([*worker, "conclude", folder, "0"])
        record = read_json(Path(folder, RECORD_FILE), Record)
    return record.window_seconds / case.measured_steps


def time_script(script: list[str]) -> float:
    """Return the mean seconds of a step after the warm-up, from the list that the script prints."""
    output = run([*script, str(WARMUP_STEPS + MEASURED_STEPS)])
    return statistics.mean(json.loads(output.splitlines()[-1])[WARMUP_STEPS:])


def run(command: list[str]) -> str:
    """Return the standard output of a command, run with the same threads on both sides."""
    paths = {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": str(THREADS)}
    env = {**os.environ, **paths, **ONE_RANK}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout


def make_case(
    framework: str,
    model: str = "resnet50",
    model_parameters: Mapping[str, Any] = MappingProxyType({}),
    batch_size: int = 2,
) -> Case:
    adapter = load_adapter(framework)
    return Case(
        run_id="benchmark",
        case_id=f"{framework}-{model}",
        repeat=1,
        attempt=1,
        axes=Axes(
            framework=framework,
            topology="1n1g",
            batch_size_per_device=batch_size,
            compiler=COMPILERS.get(framework, "none"),
            memory_format=MEMORY_FORMATS.get(framework, "default"),
            gradient_sync=adapter.SUPPORTED["gradient_sync"][0],
        ),
        model=model,
        model_parameters=dict(model_parameters),
        device="cpu",
        cpus_per_rank=THREADS,
        warmup_steps=WARMUP_STEPS,
        measured_steps=MEASURED_STEPS,
        seed=1,
    )


if __name__ == "__main__":
    main()
