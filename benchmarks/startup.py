"""CPU time of starting commands over that of `python -c pass`, and the files that each opens.

Both run in a plain virtual environment with the tool's wheel: an editable installation would also
slow `pass` down.
"""

import re
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from measuring import (
    CHECKOUT,
    NOTHING_ELSE,
    alternate,
    count_opened,
    find_median_cpu,
    make_plain_environment,
    measure_command,
)
from rows import Row, print_rows

ROUNDS = 15
PASS = "python -c pass"
MATRICES = CHECKOUT / "matrices"
# largest ratio to `python -c pass`
TARGETS = {
    "--help": 2.5,
    "config show": 15.0,
    "plan": 12.0,
    "status": 6.0,
    "list": None,
    "log": None,
    "cancel": None,
}
HELP_OPENS = 119
WHY_MISSED = {
    "--help": "Beside the interpreter's own start: argparse, and the modules that declare options.",
    "plan": (
        "pydantic's import takes 6 to 7 times `python -c pass` alone, argparse and dataclasses 2, "
        "and pydantic's models, made in one go, 5."
    ),
    "status": (
        "JSON alone is read; argparse, json, pathlib, dataclasses and msgspec alone take 4.5 times "
        "`python -c pass`."
    ),
    "config show": "pydantic alone is 6 to 7 times `python -c pass`.",
}


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 3: medians over rounds in which the commands run in turn."""
    with tempfile.TemporaryDirectory() as folder:
        programs = make_plain_environment(Path(folder))
        commands = list_commands(programs, Path(folder))
        measures = {
            name: partial(measure_command, line, env=NOTHING_ELSE)
            for name, line in commands.items()
        }
        costs = alternate(measures, 3 if is_quick else ROUNDS)
        opened = {name: count_opened(line, NOTHING_ELSE) for name, line in commands.items()}
    rows = []
    for name, target in TARGETS.items():
        words = [
            word.replace(f"{CHECKOUT}/", "").replace(folder, "RUNS") for word in commands[name][1:]
        ]
        rows.append(
            Row(
                part=3,
                name=name,
                measured=1000 * find_median_cpu(costs[name]),
                unit="CPU ms",
                command=" ".join(["dlperf-slurm", *words]),
                peer=PASS,
                peer_measured=1000 * find_median_cpu(costs[PASS]),
                target_ratio=target,
                why_missed=WHY_MISSED.get(name, ""),
            )
        )
        rows.append(
            Row(
                part=3,
                name=f"{name}: files and folders opened",
                measured=opened[name],
                unit="",
                target=HELP_OPENS if name == "--help" else None,
                problem="" if opened[name] else "strace is not on PATH",
            )
        )
    return rows


def list_commands(programs: Path, folder: Path) -> dict[str, list[str]]:
    """Return the command lines; stages a run of 24 tasks in the folder, for those that read one."""
    tool, local = str(programs / "dlperf-slurm"), ["--site", "local"]
    staging = ["render", str(MATRICES / "quickstart.toml"), *local, "--results", str(folder)]
    done = subprocess.run([tool, *staging], check=True, capture_output=True, text=True)
    run = re.findall(r"resume (\S+)", done.stdout)[0]
    return {
        PASS: [str(programs / "python"), "-c", "pass"],
        "--help": [tool, "--help"],
        "config show": [tool, "config", "show", *local],
        "plan": [tool, "plan", str(MATRICES / "bert.toml"), *local],
        "status": [tool, "status", run],
        "list": [tool, "list", "--results", str(folder)],
        "log": [tool, "log", run],
        "cancel": [tool, "cancel", run],
    }


if __name__ == "__main__":
    print_rows(measure_rows)
