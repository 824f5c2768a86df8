"""CPU time of starting commands over that of `python -c pass`, and the files that each opens."""

import re
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from measuring import CHECKOUT, TOOL, alternate, count_opened, find_median_cpu, measure_command
from rows import Row, print_rows

ROUNDS = 15
BARE = [sys.executable, "-c", "pass"]
MATRICES = CHECKOUT / "matrices"
# largest ratio to `python -c pass`
TARGETS = {"--help": 2.5, "config show": 15.0, "plan": 12.0, "status": 6.0}
HELP_OPENS = 119
WHY_MISSED = {
    "--help": "Beside the interpreter's own start: argparse, and the modules that declare options.",
    "plan": (
        "pydantic with what one model needs is 8 to 10 times `python -c pass` alone. What the "
        "repeats can tell is simulated once, and kept in the user's cache, which spares NumPy; "
        "pydantic's models are built in one go, without the docstrings of their fields."
    ),
    "status": (
        "JSON alone is read, without pydantic, rich and submitit; what is left are some 45 frozen "
        "dataclasses, as many regular expressions, and msgspec."
    ),
    "config show": "pydantic alone is 8 to 10 times `python -c pass`.",
}


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of part 3: medians over rounds in which the commands run in turn."""
    with tempfile.TemporaryDirectory() as folder:
        commands = list_commands(Path(folder))
        costs = alternate(
            {name: partial(measure_command, line) for name, line in commands.items()},
            3 if is_quick else ROUNDS,
        )
        opened = {name: count_opened(line) for name, line in commands.items()}
    rows = []
    for name, target in TARGETS.items():
        line = commands[name]
        words = [word.replace(f"{CHECKOUT}/", "") for word in line[len(TOOL) :]]
        rows.append(
            Row(
                part=3,
                name=name,
                measured=1000 * find_median_cpu(costs[name]),
                unit="CPU ms",
                command=" ".join(
                    ["dlperf-slurm", *(words if name != "status" else ["status", "RUN"])]
                ),
                peer="python -c pass",
                peer_measured=1000 * find_median_cpu(costs["python -c pass"]),
                target_ratio=target,
                why_missed=WHY_MISSED[name],
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


def list_commands(folder: Path) -> dict[str, list[str]]:
    """Return the command lines; stages a run of 24 tasks in the folder for `status`."""
    local = ["--site", "local"]
    staging = ["render", str(MATRICES / "quickstart.toml"), *local, "--results", str(folder)]
    done = subprocess.run([*TOOL, *staging], check=True, capture_output=True, text=True)
    run = re.findall(r"resume (\S+)", done.stdout)[0]
    return {
        "python -c pass": BARE,
        "--help": [*TOOL, "--help"],
        "config show": [*TOOL, "config", "show", *local],
        "plan": [*TOOL, "plan", str(MATRICES / "bert.toml"), *local],
        "status": [*TOOL, "status", run],
    }


if __name__ == "__main__":
    print_rows(measure_rows)
