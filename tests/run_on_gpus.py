"""The acceptance on real GPUs, any number of them -> a report that can be sent in.

    python tests/run_on_gpus.py [FRAMEWORK ...] [--python FRAMEWORK=PATH] [--limit SECONDS]
        [--only PART] [--report FOLDER] [--device cpu]

Runs tests/gpu, the tests of adapters, and those of tests/worker that need a GPU, one part after the
other, without network, MPI or Slurm: in the Pythons that --python names, which need NumPy and
pytest, else in the environments of `make gpu-environments`. The report is written after each part,
and again if a signal ends it. The parts for one GPU share a time limit; those for two or more
follow if there are as many. The exit code is 0 only if everything that this machine can run has
passed. If an environment or a GPU is missing, each check says so. --device cpu tries the code at
small sizes.
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
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

# a Python that has nothing of ours must find the package
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

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
GENERATION = "tests/gpu/test_generation.py"
# what every adapter must pass on CPUs
SMALL_SIZES = ("tests/worker/test_adapter.py", "tests/worker/test_adapter_training.py")
CPU = "cpu"
ONE_GPU_SECONDS = 3600.0
LOOK_SECONDS = 120.0
LOG_END = 1500
# tests/support/gpu_outcomes.py, whose file read_outcomes reads
PLUGIN = "support.gpu_outcomes"
UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]+")
MAKE_THEM = "make them where there is a network: make gpu-environments"
NO_GPU = (
    "no NVIDIA GPU is to be seen here: run it on a node where `nvidia-smi -L` lists one, within a "
    "job that has asked for it"
)
NO_TIME = "the parts before took the time for one GPU: --limit is longer, --only chooses parts"


@dataclass(frozen=True)
class Part:
    """Checks that run in one process, in a framework's environment, or "" for the tool's Python."""

    name: str
    framework: str
    arguments: tuple[str, ...]
    limit_seconds: float = 180.0
    gpus: int = 1
    # tests beside each other on one GPU, if pytest-xdist is installed
    processes: int = 1
    # for tests of every framework, some of which are not for this one
    may_skip: bool = False

    @property
    def files(self) -> list[Path]:
        return [CHECKOUT / one for one in self.arguments if one.endswith(".py")]


class StoppedError(Exception):
    """A signal that asks the acceptance to end."""


class Stop:
    """Handler of signals: raises StoppedError, and keeps the reason."""

    reason = ""

    def __call__(self, number: int, _frame: object) -> None:
        """Handle a signal."""
        self.reason = f"the acceptance was ended by {signal.Signals(number).name}"
        raise StoppedError(self.reason)


@dataclass(frozen=True)
class Machine:
    """What all parts share: the report's folder, the Pythons, and the GPUs that are there."""

    folder: Path
    pythons: dict[str, Optional[Path]]
    device: str = CUDA
    gpus: int = 0

    @property
    def log(self) -> Path:
        """The output of all parts."""
        return self.folder / "log"

    @property
    def outcomes(self) -> Path:
        """The outcomes as they come, a line of JSON each."""
        return self.folder / "outcomes.jsonl"


def list_parts(frameworks: Sequence[str]) -> Iterator[Part]:
    """Yield all parts, the most wanted first, as the time may end."""
    has_reference = "pytorch" in frameworks
    for framework in frameworks:
        files = ["tests/gpu/test_device.py"]
        own = f"tests/gpu/test_{framework}_device.py"
        files += [own] if (CHECKOUT / own).exists() else []
        yield Part(framework, framework, (*files, "--framework", framework), 240.0)
    if has_reference:
        yield Part("parity", "pytorch", ("tests/gpu/test_same_work.py",), 480.0, processes=8)
    full_size = ("tests/gpu/test_full_size.py", "-k")
    for framework in frameworks:
        named = (*full_size, "not largest", "--framework", framework)
        yield Part(f"{framework} full size", framework, named, 420.0)
        tests = (GENERATION, "--framework", framework)
        yield Part(f"{framework} generation", framework, tests, 300.0)
    for framework in frameworks:
        tests = (*SMALL_SIZES, "--framework", framework, "-m", "not exhaustive")
        yield Part(
            *(f"{framework} small sizes", framework, tests, 300.0), processes=8, may_skip=True
        )
    if has_reference:
        yield Part("public models", "pytorch", ("tests/gpu/test_public_models.py",), 240.0)
        yield Part("ceilings", "pytorch", ("tests/gpu/test_ceilings.py",), 90.0)
        gated = ("tests/worker/test_pytorch.py", "-k", "gpu or cuda")
        yield Part("adapter", "pytorch", (*gated, "--framework", "pytorch"))
        yield Part("out of memory", "pytorch", ("tests/gpu/test_out_of_memory.py",), 240.0)
        yield Part("variants", "pytorch", ("tests/gpu/test_variants.py",), 420.0)
        largest = (*full_size, "largest", "--framework", "pytorch")
        yield Part("largest batch", "pytorch", largest, 240.0)
        several = ("tests/gpu/test_several.py", "--framework", "pytorch")
        yield Part("several GPUs", "pytorch", several, 600.0, gpus=2)
        yield Part("parity of ranks", "", ("tests/gpu/test_ranks_share_work.py",), 600.0, gpus=2)


def main() -> int:
    """Run all parts and write the report; return 0 if all that could run has passed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("frameworks", nargs="*", metavar="FRAMEWORK", help="default: all three")
    parser.add_argument(
        "--python", action="append", default=[], type=read_python, metavar="FRAMEWORK=PATH"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=ONE_GPU_SECONDS,
        metavar="SECONDS",
        help="for all parts of one GPU together, default: %(default)g",
    )
    parser.add_argument("--only", action="append", metavar="PART", help="may be repeated")
    parser.add_argument("--report", type=Path, default=REPORT, metavar="FOLDER")
    parser.add_argument("--device", choices=(CUDA, CPU), default=CUDA)
    options = parser.parse_args()
    named = dict(options.python)
    frameworks = options.frameworks or [*named] or FRAMEWORKS
    unknown = sorted({*frameworks, *named} - {*FRAMEWORKS})
    if unknown:
        parser.error(f"{unknown[0]!r} is not accepted on GPUs; known: {', '.join(FRAMEWORKS)}")
    parts = {part.name: part for part in list_parts(frameworks)}
    unknown = sorted({*(options.only or ())} - {*parts})
    if unknown:
        parser.error(f"--only: there is no part {unknown[0]!r}; known: {', '.join(parts)}")
    chosen = [parts[name] for name in options.only or parts]
    pythons = {name: named.get(name) or find_python(name) for name in ("", *frameworks)}
    return accept(chosen, Machine(options.report, pythons, options.device), options.limit)


def read_python(pair: str) -> tuple[str, Path]:
    """Read FRAMEWORK=PATH; raises ArgumentTypeError if there is no such program."""
    name, _, path = pair.partition("=")
    found = shutil.which(path)
    if found is None:
        raise argparse.ArgumentTypeError(f"{pair!r}: {path!r} is no program")
    # not resolved: a virtual environment's Python is a link
    return name, Path(found).absolute()


def accept(parts: Sequence[Part], machine: Machine, limit_seconds: float = ONE_GPU_SECONDS) -> int:
    """Run these parts, write report.md and report.json, print the paths; return the exit code.

    The report is written after each part.
    """
    shutil.rmtree(machine.folder, ignore_errors=True)
    machine.folder.mkdir(parents=True, exist_ok=True)
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    needed = {"": machine.pythons.get(""), **{one.framework: None for one in parts}}
    described = look_at_machine({name: machine.pythons.get(name) for name in needed})
    if machine.device == CPU:
        described["gpus"] = 0
    machine = replace(machine, gpus=described["gpus"])
    started = time.monotonic()
    facts: dict[str, Any] = {
        "made_at": format_now(),
        "dlperf_slurm": f"{__version__} {read_commit()}".strip(),
    }
    outcomes: list[Outcome] = []
    for part in sorted(parts, key=lambda part: part.gpus > 1):
        left = part.limit_seconds
        if part.gpus == 1:
            left = min(left, limit_seconds - (time.monotonic() - started))
        outcomes += map(hide_places, try_part(part, machine, left, stop))
        facts["seconds"] = round(time.monotonic() - started, 1)
        write_report(machine.folder, described, outcomes, facts)
    for reason, names in group_by_reason(outcomes).items():
        print(*names, sep="\n")
        print(f"    {reason.splitlines()[-1]}")
    print(conclude(outcomes, machine.gpus))
    print(f"report: {machine.folder / 'report.md'}, and report.json beside it: see docs/gpu.md")
    return 0 if find_verdict(outcomes) == PASSED else 1


def write_report(
    folder: Path, described: dict[str, Any], outcomes: Sequence[Outcome], facts: dict[str, Any]
) -> None:
    for name, make in (("report.json", make_json), ("report.md", make_markdown)):
        (folder / name).write_text(make(described, outcomes, facts), encoding="utf-8")


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


def try_part(part: Part, machine: Machine, left_seconds: float, stop: Stop) -> list[Outcome]:
    """Return the outcomes of a part's checks, or the reason why they cannot run here."""
    reason = find_lack(part, machine) or stop.reason
    if not reason and left_seconds <= 0:
        reason = NO_TIME
    if reason:
        is_excused = reason.startswith(NOT_FOR_THIS_GPU)
        return [
            Outcome(part.name, name, NOT_RUN, reason=reason, is_excused=is_excused)
            for name in list_checks(part)
        ]
    print(f"{part.name}: at most {left_seconds:.0f} s", flush=True)
    return run_part(part, machine, left_seconds)


def find_lack(part: Part, machine: Machine) -> str:
    """Return what is missing for a part, and what to do, or ''."""
    python = machine.pythons.get(part.framework)
    if python is None:
        return f"there is no environment {get_environment_name(part.framework, CUDA)}: {MAKE_THEM}"
    if not has_module(str(python), "pytest"):
        return f"pytest is not in the environment of {part.framework or 'the tool'}: {MAKE_THEM}"
    if machine.gpus == 0 and machine.device == CUDA:
        return NO_GPU
    if machine.gpus < part.gpus and part.gpus > 1:
        return f"{NOT_FOR_THIS_GPU}it takes {part.gpus} GPUs, and there is {machine.gpus}"
    return ""


def has_module(python: str, name: str) -> bool:
    done = subprocess.run([python, "-c", f"import {name}"], stderr=subprocess.DEVNULL)
    return done.returncode == 0


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


def make_command(part: Part, machine: Machine) -> list[str]:
    """Return the command of a part's checks, with the device, and for tests/gpu the Pythons."""
    python = str(machine.pythons[part.framework])
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", PLUGIN]
    command += [f"--outcomes={machine.outcomes}", *part.arguments]
    if part.arguments[0].startswith("tests/gpu/") or part.arguments[0] in SMALL_SIZES:
        command.append(f"--device={machine.device}")
    if part.processes > 1 and has_module(python, "xdist"):
        command += ["-n", str(min(part.processes, os.cpu_count() or 1))]
    if part.arguments[0].startswith("tests/gpu/"):
        named = {name: path for name, path in machine.pythons.items() if name and path}
        command += [f"--python={name}={path}" for name, path in named.items()]
    return command


def run_part(part: Part, machine: Machine, limit_seconds: float) -> list[Outcome]:
    """Run pytest; a check that was running at the time limit or a crash has failed."""
    before = read_end(machine.outcomes, 0)
    with machine.log.open("ab") as output:
        output.write(f"== {part.name}\n".encode())
        output.flush()
        log_start = output.tell()
        process = subprocess.Popen(
            make_command(part, machine),
            cwd=CHECKOUT,
            env=make_environment(machine.pythons[part.framework]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(limit_seconds)
            how = f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            code, how = None, f"was ended after {limit_seconds:.0f} s"
        except StoppedError as error:
            code, how = None, str(error)
        finally:
            # what a check has started, too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    end = f"{read_end(machine.log, log_start)[-LOG_END:]}\n{how}"
    lines = read_end(machine.outcomes, len(before.encode())).splitlines()
    outcomes = read_outcomes(part.name, lines, end)
    if part.may_skip:
        skipped = {one for one in outcomes if one.verdict == NOT_RUN}
        outcomes = [replace(one, is_excused=one in skipped) for one in outcomes]
    if not outcomes:
        return [Outcome(part.name, "all", FAILED, reason=f"{end}, and no check had begun")]
    # it ended between two checks
    if code not in (0, 1) and not any(one.reason == end for one in outcomes):
        outcomes.append(Outcome(part.name, "the checks that follow", FAILED, reason=end))
    return outcomes


def read_end(path: Path, start: int) -> str:
    """Return the text of a file after so many bytes; '' if there is no file."""
    return path.read_bytes()[start:].decode("utf-8", "replace") if path.exists() else ""


def make_environment(python: Optional[Path]) -> dict[str, str]:
    """Return a job script's environment: the environment's programs first, and this checkout."""
    assert python is not None, "a part without a Python is not run"
    path = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    code = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "tests")])
    own = {"PATH": path, "PYTHONPATH": code, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
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
