"""Release archives of the checkout, and the quickstart run from an installed one."""

import os
import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = CHECKOUT / ".venv" / "environments"
# settings that shorten the quickstart
SHORT = ["protocol.repeats=1", "protocol.measured_steps=3"]


def run(command, **options):
    """Run a command, assert that it succeeds, and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def copy_checkout(copy):
    """Copy the checkout, without files that are not part of the project."""
    shutil.copytree(CHECKOUT, copy, ignore=_list_left_out)


def _list_left_out(folder, names):
    left_out = shutil.ignore_patterns(".git", ".venv", "*.egg-info", ".*_cache")(folder, names)
    # only at the top level: the package has folders with these names
    return left_out | ({"results", "data"} if Path(folder) == CHECKOUT else set())


def make_environment(python):
    """Return variables with the scripts of `python` first on PATH, and our environments."""
    path = f"{python.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DLPERF_SLURM_ENVIRONMENTS": str(ENVIRONMENTS)}


def run_quickstart(python, folder):
    """Run a shortened quickstart of the installed tool, from its matrix to its report."""
    # measuring peaks takes seconds of each array task
    environment = {**make_environment(python), "DLPERF_SLURM_PEAKS": "0"}
    run(["dlperf-slurm", "init"], cwd=folder, env=environment)
    options = [word for value in SHORT for word in ("--set", value)]
    submit = ["dlperf-slurm", "submit", "matrices/quickstart.toml", "--site", "local"]
    printed = run([*submit, "--within", "5min", "--wait", *options], cwd=folder, env=environment)
    assert "2/2 done: 2 COMPLETED" in printed
    assert " trains at " in printed
    report = Path(printed.partition("\nReport: ")[2].splitlines()[0])
    assert report.is_file()
