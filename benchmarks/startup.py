"""Time of `python -m dlperf_slurm --help` over that of `python -c pass`, as a ratio."""

import statistics
import subprocess
import sys
import time

PAIRS = 15


def time_command(command: list[str]) -> float:
    """Wall seconds of one run."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Alternate both, so that a drift of the machine falls on both, and print the median ratio."""
    bare = [sys.executable, "-c", "pass"]
    ours = [sys.executable, "-m", "dlperf_slurm", "--help"]
    time_command(bare), time_command(ours)
    ratios = [time_command(ours) / time_command(bare) for _ in range(PAIRS)]
    print(
        f"--help / python -c pass: median {statistics.median(ratios):.2f}, "
        f"{min(ratios):.2f} to {max(ratios):.2f} in {PAIRS} pairs"
    )


if __name__ == "__main__":
    main()
