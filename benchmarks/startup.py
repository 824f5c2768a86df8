"""CPU time of commands over that of `python -c pass`, as ratios, and the files that each opens.

A page of help is to take at most 2.5, `plan`, `status` and `config show` at most 15.
"""

import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 15
TOOL = [sys.executable, "-m", "dlperf_slurm"]
BARE = [sys.executable, "-c", "pass"]
MATRICES = Path(__file__).parents[1] / "matrices"


def measure_cpu(command: list[str]) -> float:
    """User and system seconds of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def count_opened(command: list[str]) -> str:
    """How many files and folders one run opens; "?" where there is no strace."""
    if shutil.which("strace") is None:
        return "?"
    with tempfile.NamedTemporaryFile("r") as log:
        trace = ["strace", "-f", "-qq", "-e", "trace=open,openat", "-o", log.name]
        subprocess.run([*trace, *command], check=True, stdout=subprocess.DEVNULL)
        return str(sum(" = -1 " not in line for line in log))


def main() -> None:
    """Alternate all commands, so that a drift of the machine falls on each; print the medians."""
    with tempfile.TemporaryDirectory() as folder:
        local = ["--site", "local"]
        staging = ["render", str(MATRICES / "quickstart.toml"), *local, "--results", folder]
        done = subprocess.run([*TOOL, *staging], check=True, capture_output=True, text=True)
        run = re.findall(r"resume (\S+)", done.stdout)[0]
        commands = {
            "python -c pass": BARE,
            "--help": [*TOOL, "--help"],
            "config show": [*TOOL, "config", "show", *local],
            "plan": [*TOOL, "plan", str(MATRICES / "bert.toml"), *local],
            "status": [*TOOL, "status", run],
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                seconds[name].append(measure_cpu(command))
        for name, command in commands.items():
            ratio = statistics.median(
                ours / bare for ours, bare in zip(seconds[name], seconds["python -c pass"])
            )
            print(
                f"{name:16} {1000 * statistics.median(seconds[name]):5.0f} ms of CPU time, "
                f"{ratio:5.2f} x `python -c pass`, {count_opened(command)} files opened"
            )


if __name__ == "__main__":
    main()
