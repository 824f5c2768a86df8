"""This machine and its software -> names and texts, for the head of a table of figures."""

import os
import platform
import re
import shutil
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from measuring import CHECKOUT

PACKAGES = ("numpy", "pandas", "pyarrow", "duckdb", "msgspec", "pydantic", "submitit", "matplotlib")


def describe_machine() -> dict[str, str]:
    """Describe the machine and its software; call it before measuring, as it reads the load."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": run(["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"]) or "unknown",
        "CPU": f"{find_cpu_model()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory / 2**30:.0f} GiB",
        "load before": ", ".join(f"{load:.1f}" for load in os.getloadavg()) + " (1, 5, 15 minutes)",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "Python": platform.python_version(),
        "packages": ", ".join(f"{name} {find_version(name)}" for name in PACKAGES),
        "Slurm": run(["slurmctld", "-V"]).replace("slurm-wlm ", "") or "none",
    }


def find_cpu_model() -> str:
    """Return the CPU model as Linux names it, else the architecture."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return found.group(1).strip() if found else platform.machine()


def find_version(package: str) -> str:
    """Return the version of an installed package, or "none"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def run(command: list[str]) -> str:
    """Return the output of a command, or '' if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
