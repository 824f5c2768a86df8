"""The acceptance on real GPUs, any number of them -> a report that can be sent in.

    python tests/run_on_gpus.py [FRAMEWORK ...] [--report FOLDER]

Runs tests/gpu, and the tests of tests/worker that need a GPU, in the environments of `make
gpu-environments`, one part after the other, without network. The parts for one GPU take at most ten
minutes; those for two or more follow if there are as many. The exit code is 0 only if everything
that this machine can run has passed. If an environment or a GPU is missing, each check says so.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional
from xml.etree.ElementTree import ParseError

from support.gpu_report import (
    FAILED,
    NOT_FOR_THIS_GPU,
    NOT_RUN,
    PASSED,
    Outcome,
    conclude,
    find_verdict,
    group_by_reason,
    make_json,
    make_markdown,
    read_outcomes,
)

from dlperf_slurm.config.folders import CUDA, find_managed_environment, get_environment_name
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.version import __version__

CHECKOUT = Path(__file__).resolve().parents[1]
MACHINE = CHECKOUT / "tests" / "support" / "gpu_machine.py"
REPORT = CHECKOUT / ".venv" / "gpu-report"
FRAMEWORKS = ("pytorch", "jax", "tensorflow2")
ONE_GPU_SECONDS = 600.0
LOOK_SECONDS = 120.0
LOG_END = 1500
UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]+")
MAKE_THEM = "make them where there is a network: make gpu-environments"
NO_GPU = (
    "no NVIDIA GPU is to be seen here: run it on a node where `nvidia-smi -L` lists one, within a "
    "job that has asked for it"
)
NO_TIME = f"the parts before took the {ONE_GPU_SECONDS:.0f} seconds for one GPU: see their logs"


@dataclass(frozen=True)
class Part:
    """Checks that run in one process, in a framework's environment, or "" for the tool's Python."""

    name: str
    framework: str
    arguments: tuple[str, ...]
    limit_seconds: float = 180.0
    gpus: int = 1

    @property
    def files(self) -> list[Path]:
        return [CHECKOUT / one for one in self.arguments if one.endswith(".py")]


def list_parts(frameworks: Sequence[str]) -> Iterator[Part]:
    """Yield all parts, those for one GPU first."""
    for framework in frameworks:
        files = ["tests/gpu/test_device.py"]
        own = f"tests/gpu/test_{framework}_device.py"
        files += [own] if (CHECKOUT / own).exists() else []
        yield Part(framework, framework, (*files, "--framework", framework), 240.0)
    if "pytorch" in frameworks:
        gated = ("tests/worker/test_pytorch.py", "-k", "gpu or cuda")
        yield Part("adapter", "pytorch", (*gated, "--framework", "pytorch"))
        alone = ("tests/gpu/test_same_work.py", "-k", "not ranks")
        yield Part("parity", "", alone, 240.0)
        several = ("tests/gpu/test_several.py", "--framework", "pytorch")
        yield Part("several GPUs", "pytorch", several, 600.0, gpus=2)
        yield Part("parity of ranks", "", ("tests/gpu/test_same_work.py", "-k", "ranks"), 600.0, 2)


def main() -> int:
    """Run all parts and write the report; return 0 if all that could run has passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="default: all three")
    parser.add_argument("--report", type=Path, default=REPORT, metavar="FOLDER")
    options = parser.parse_args()
    unknown = sorted(set(options.frameworks) - set(FRAMEWORKS))
    if unknown:
        parser.error(f"{unknown[0]!r} is not accepted on GPUs; known: {', '.join(FRAMEWORKS)}")
    return accept(list(list_parts(options.frameworks or FRAMEWORKS)), options.report)


def accept(parts: Sequence[Part], folder: Path) -> int:
    """Run these parts, write report.md and report.json, print the paths; return the exit code."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pythons = {part.framework: find_python(part.framework) for part in parts}
    machine = look_at_machine(pythons)
    started = time.monotonic()
    one_gpu_seconds = 0.0
    outcomes: list[Outcome] = []
    for part in sorted(parts, key=lambda part: part.gpus > 1):
        left = part.limit_seconds
        if part.gpus == 1:
            left = min(left, ONE_GPU_SECONDS - (time.monotonic() - started))
        outcomes += try_part(part, pythons[part.framework], machine["gpus"], folder, left)
        if part.gpus == 1:
            one_gpu_seconds = time.monotonic() - started
    outcomes = [*map(hide_places, outcomes)]
    facts = {
        "made_at": format_now(),
        "dlperf_slurm": f"{__version__} {read_commit()}".strip(),
        "seconds": round(time.monotonic() - started, 1),
        "one_gpu_seconds": round(one_gpu_seconds, 1),
    }
    (folder / "report.json").write_text(make_json(machine, outcomes, facts), encoding="utf-8")
    (folder / "report.md").write_text(make_markdown(machine, outcomes, facts), encoding="utf-8")
    for reason, names in group_by_reason(outcomes).items():
        print(*names, sep="\n")
        print(f"    {reason.splitlines()[-1]}")
    print(conclude(outcomes, machine["gpus"]))
    print(f"report: {folder / 'report.md'}, and report.json beside it: see docs/gpu.md")
    return 0 if find_verdict(outcomes) == PASSED else 1


def find_python(framework: str) -> Optional[Path]:
    """Return the Python of a framework's GPU environment, or the tool's own for "", or None."""
    if not framework:
        return Path(sys.executable)
    python = find_managed_environment(get_environment_name(framework, CUDA)) / "bin" / "python"
    return python if python.exists() else None


def look_at_machine(pythons: dict[str, Optional[Path]]) -> dict[str, Any]:
    """Describe this machine as the environments see it, with the packages of each."""
    machine: dict[str, Any] = {"gpus": 0, "packages_by_environment": {}}
    for framework, python in pythons.items():
        if python is None:
            continue
        try:
            done = subprocess.run(
                [python, MACHINE],
                env=make_environment(python),
                stdout=subprocess.PIPE,
                timeout=LOOK_SECONDS,
                check=True,
            )
            found = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            machine["packages_by_environment"][framework] = f"its Python does not answer: {error}"
            continue
        packages = {"python": found.pop("python"), **found.pop("packages")}
        machine["packages_by_environment"][framework or "tool"] = packages
        # environments with pynvml report most
        if framework or not machine["gpus"]:
            machine.update(found)
    return machine


def try_part(
    part: Part, python: Optional[Path], gpus: int, folder: Path, left_seconds: float
) -> list[Outcome]:
    """Return the outcomes of a part's checks, or the reason why they cannot run here."""
    reason = find_lack(part, python, gpus)
    if not reason and left_seconds <= 0:
        reason = NO_TIME
    if reason:
        is_excused = reason.startswith(NOT_FOR_THIS_GPU)
        return [
            Outcome(part.name, name, NOT_RUN, reason=reason, is_excused=is_excused)
            for name in list_checks(part)
        ]
    print(f"{part.name}: at most {left_seconds:.0f} s", flush=True)
    return run_part(part, python, folder, left_seconds)


def find_lack(part: Part, python: Optional[Path], gpus: int) -> str:
    """Return what is missing for a part, and what to do, or ''."""
    if python is None:
        return f"there is no environment {get_environment_name(part.framework, CUDA)}: {MAKE_THEM}"
    done = subprocess.run([python, "-c", "import pytest"], stderr=subprocess.DEVNULL)
    if done.returncode != 0:
        return f"pytest is not in the environment of {part.framework or 'the tool'}: {MAKE_THEM}"
    if gpus == 0:
        return NO_GPU
    if gpus < part.gpus:
        return f"{NOT_FOR_THIS_GPU}it takes {part.gpus} GPUs, and there is {gpus}"
    return ""


def list_checks(part: Part) -> list[str]:
    """Return the names of a part's checks from its files; with -k, the files alone."""
    if "-k" in part.arguments:
        chosen = part.arguments[part.arguments.index("-k") + 1]
        return [f"{file.name} -k '{chosen}'" for file in part.files]
    return [
        name
        for file in part.files
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def run_part(part: Part, python: Path, folder: Path, limit_seconds: float) -> list[Outcome]:
    """Run pytest; a run without a result file or over its time limit is one failed check."""
    stem = part.name.replace(" ", "-")
    results, log = folder / f"{stem}.xml", folder / f"{stem}.log"
    command = [python, "-m", "pytest", "-q", f"--junitxml={results}", *part.arguments]
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=make_environment(python),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: Optional[int] = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.monotonic() - started
    end = log.read_text(encoding="utf-8", errors="replace")[-LOG_END:]
    try:
        outcomes = read_outcomes(part.name, results)
    except (OSError, ParseError):
        how = f"ended with exit code {code}"
        if code is None:
            how = f"was ended after {limit_seconds:.0f} s"
        return [Outcome(part.name, "all", FAILED, reason=f"{end}\n{how}", seconds=seconds)]
    if not outcomes:
        outcomes = [Outcome(part.name, "all", FAILED, reason=f"{end}\nno check was found")]
    return outcomes


def make_environment(python: Path) -> dict[str, str]:
    """Return a job script's environment: the environment's programs first, and this checkout."""
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    own = {"PATH": path, "PYTHONPATH": str(CHECKOUT), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**os.environ, **own}


def read_commit() -> str:
    """Return the commit of the checkout, or ''."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()


def hide_places(outcome: Outcome) -> Outcome:
    """Remove host name, GPU UUIDs and user folders from a reason, as the report is published."""
    reason = outcome.reason
    words = {str(CHECKOUT): ".", str(Path.home()): "~", socket.gethostname(): "HOST"}
    for text, word in words.items():
        reason = reason.replace(text, word)
    reason = UUID.sub(r"\1-UUID", reason)
    return replace(outcome, reason=reason)


if __name__ == "__main__":
    sys.exit(main())
