"""Run programs in a framework's CUDA environment with stub libraries, and read their answers."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Union

from dlperf_slurm.config.folders import CUDA, find_managed_environment, get_environment_name
from rehearsal.build import Library, build, build_nvml, find_packages
from rehearsal.combinations import RANKS, SEARCH_MEMORY_MIB, Combination
from rehearsal.compiled import Compilation

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = CHECKOUT / "tests" / "rehearsal"
# variables of all programs
VARIABLES = {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}", "OMP_NUM_THREADS": "1"}


class Stage:
    """The Python of a framework's environment with stub libraries; raises BuildError."""

    def __init__(self, framework: str, wanted: Sequence[Library], folder: Path) -> None:
        environment = find_environment(framework)
        built = folder / f"libraries-{framework}"
        libraries = build(environment, built, wanted)
        build_nvml(CHECKOUT / "tests" / "support" / "nvml_library.c", built)
        # libraries without a stub, which are loaded but not called
        real = find_packages(environment).glob("nvidia/cu[fs]*/lib")
        self._framework = framework
        self._python = environment / "bin" / "python"
        self._variables = {
            **os.environ,
            "PATH": f"{environment / 'bin'}:{os.environ.get('PATH', '')}",
            "LD_PRELOAD": ":".join(map(str, libraries)),
            # the frameworks and pynvml look for NVML here
            "LD_LIBRARY_PATH": ":".join(map(str, (built, *real))),
            "REHEARSAL_DEVICES": str(max(RANKS)),
            **VARIABLES,
        }
        self._variables.pop("CUDA_VISIBLE_DEVICES", None)

    def observe(self, combinations: Sequence[Combination], log: Path) -> Iterator[dict[str, Any]]:
        """Yield the trace of each combination, all on the same kind of GPU, in order."""
        variables = {"REHEARSAL_CAPABILITY": str(combinations[0].capability)}
        command = [self._python, PROGRAMS / "observe.py", self._framework]
        return ask(command, {**self._variables, **variables}, combinations, log)

    def search(self, model: str, ranks: int, variables: dict[str, str]) -> dict[str, Any]:
        """Run a search for the largest batch, and return its outcome."""
        memory = {"REHEARSAL_MEMORY_MIB": str(SEARCH_MEMORY_MIB)}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [self._python, PROGRAMS / "search.py", model, str(ranks), folder],
                env={**self._variables, **memory, **variables},
                capture_output=True,
                text=True,
            )
        if done.returncode != 0:
            return {"error": done.stderr[-2000:]}
        return json.loads(done.stdout.splitlines()[-1])


def find_environment(framework: str) -> Path:
    """Return the folder of a framework's managed CUDA environment, which may be missing."""
    return find_managed_environment(get_environment_name(framework, CUDA))


def ask(
    command: Sequence[Union[str, Path]],
    variables: dict[str, str],
    asked: Sequence[Union[Combination, Compilation]],
    log: Path,
) -> Iterator[dict[str, Any]]:
    """Yield the answers of a program that reads these as lines of JSON, in order."""
    lines = "".join(f"{json.dumps(asdict(one))}\n" for one in asked)
    with log.open("wb") as err, tempfile.TemporaryFile() as stdin:
        stdin.write(lines.encode())
        stdin.seek(0)
        with subprocess.Popen(
            command, env=variables, stdin=stdin, stdout=subprocess.PIPE, stderr=err
        ) as process:
            for _ in asked:
                line = process.stdout.readline() if process.stdout else b""
                said = f"the program ended: see {log}"
                yield json.loads(line) if line else {"error": said}
