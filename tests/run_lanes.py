"""Run the lanes of `make check`, `make test` or `make test-all`, and report each result.

    python tests/run_lanes.py check|test|test-all

A lane is a target of the Makefile. Two run at a time, those that take longest first; the output of
one is printed when it ends. A lane that this machine cannot run is reported in one line with what
to install, and does not fail. `make test-all` starts with the lanes of `make test`, unless they
passed on the same files before.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from support.requirements import find_missing_browser, find_missing_slurm

CHECKOUT = Path(__file__).resolve().parents[1]
# the hash of the files on which `make test` last passed
TESTED = CHECKOUT / ".venv" / "tested"
AT_ONCE = 2
# by the seconds that they take, and so that one that computes runs beside one that waits
SPEEDS = {
    "check": ["test-fast", "lint"],
    "test": ["test-unit", "test-worker", "test-wheel", "lint"],
    "test-all": [
        *("test-slurm", "test-changed", "test-pythons", "test-release"),
        *("test-slow", "test-trainers", "test-browser", "docs"),
    ],
}
REQUIREMENTS = {"test-slurm": find_missing_slurm, "test-browser": find_missing_browser}
NOT_RUN = "NOT RUN: "
# lines about lanes that could not run, and the last line of each pytest
SUMMARY_LINE = re.compile(
    rf"{NOT_RUN}|\d+ (passed|failed|errors?|skipped|deselected)\b.* in [\d.]+s"
)


@dataclass(frozen=True)
class Result:
    """The result of a lane; `lines` are its lines in the summary."""

    lane: str
    has_passed: bool
    lines: Sequence[str]


def main() -> int:
    """Run the lanes of a speed; return 1 if one failed."""
    speed = sys.argv[1]
    tree = compute_tree_hash()
    if speed != "test-all":
        return run_lanes(speed, tree)
    if tree and TESTED.exists() and TESTED.read_text(encoding="ascii") == tree:
        print("make: `make test` has passed on these files, and is not run again", flush=True)
        return run_lanes(speed, tree)
    return max(run_lanes("test", tree), run_lanes(speed, tree))


def run_lanes(speed: str, tree: str) -> int:
    """Run the lanes of a speed, and summarize them; return 1 if one failed."""
    start = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(run_lane, SPEEDS[speed]))
    for result in results:
        print("\n".join(result.lines))
    failed = [result.lane for result in results if not result.has_passed]
    if speed == "test":
        TESTED.write_text("" if failed else tree, encoding="ascii")
    end = f"failed: {', '.join(failed)}" if failed else "passed"
    print(f"=== make {speed}: {end}, {time.monotonic() - start:.0f} s", flush=True)
    return int(bool(failed))


def run_lane(lane: str) -> Result:
    """Run a lane if this machine can, and print its output."""
    missing = REQUIREMENTS[lane]() if lane in REQUIREMENTS else ""
    if missing:
        return Result(lane, True, [f"{NOT_RUN}{lane}: {missing}"])
    start = time.monotonic()
    # waiting threads yield their core to other processes
    env = {"OMP_WAIT_POLICY": "passive", **os.environ}
    # hundreds of processes would compile the same modules
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        ["make", "--no-print-directory", lane],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
    )
    seconds = time.monotonic() - start
    title = f"--- {lane}: exit code {done.returncode}, {seconds:.0f} s"
    print(f"{title}\n{done.stdout}", flush=True)
    lines = [line for line in done.stdout.splitlines() if SUMMARY_LINE.match(line)]
    return Result(lane, done.returncode == 0, [title, *lines])


def compute_tree_hash() -> str:
    """Return the hash of all files that git does not ignore, or '' outside of a git checkout."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(listing, cwd=CHECKOUT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    digest = hashlib.sha256()
    for name in sorted(names.split(b"\0")):
        path = CHECKOUT / os.fsdecode(name)
        if path.is_file():
            digest.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())
