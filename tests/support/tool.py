"""The tool as a user calls it, in a separate process, and the state of its run directories."""

import multiprocessing
import multiprocessing.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Optional

import dlperf_slurm
from dlperf_slurm.cli import main
from dlperf_slurm.jobs.markers import list_markers
from dlperf_slurm.jobs.run_directory import Run, open_run
from dlperf_slurm.scheduler.track import Tracker

# a limit for hangs; nine array tasks on a busy machine take less
COMMAND_SECONDS = 900.0
# the same for what takes seconds on an idle machine
DEADLINE_SECONDS = 240.0
POLL_SECONDS = 0.05
# The fork server has a socket in this folder, which is chosen here, before tests set one whose path
# is too long for a socket.
multiprocessing.util.get_temp_dir()
# importing takes most of the time of a report, and most commands end with one
forking = multiprocessing.get_context("forkserver")
forking.set_forkserver_preload(
    ["pytest", "duckdb", "matplotlib.figure", "dlperf_slurm.interface", "dlperf_slurm.cli.report"]
)


def start_tool(
    arguments: Sequence[str], cwd: Path, env: Optional[Mapping[str, str]] = None
) -> "subprocess.Popen[str]":
    """Start `python -m dlperf_slurm ARGUMENTS`, with `env` added to this environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "dlperf_slurm", *arguments],
        cwd=cwd,
        env=make_env(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # background processes of a shell ignore SIGINT, and so do their children
        preexec_fn=heed_interrupts,
    )


def make_env(env: Optional[Mapping[str, str]]) -> dict[str, str]:
    """Return this environment with `env` added, and the package that these tests import."""
    whole_env = {**os.environ, **(env or {})}
    paths = [str(Path(dlperf_slurm.__file__).parents[1]), whole_env.get("PYTHONPATH", "")]
    return {**whole_env, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def run_tool(
    arguments: Sequence[str], cwd: Path, env: Optional[Mapping[str, str]] = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command of the tool to its end, forked from a process that has imported it already."""
    with tempfile.TemporaryDirectory(prefix="dlperf-slurm-") as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        process = forking.Process(target=call_tool, args=(arguments, cwd, make_env(env), files))
        process.start()
        process.join(COMMAND_SECONDS)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired(arguments, COMMAND_SECONDS)
        stdout, stderr = (file.read_text(encoding="utf-8") for file in files)
    return subprocess.CompletedProcess(arguments, process.exitcode, stdout, stderr)


def call_tool(
    arguments: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[Path]
) -> None:
    """Run a command in this forked process, with its output in these files."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    heed_interrupts()
    for stream, file in zip((sys.stdout, sys.stderr), files):
        with file.open("wb") as opened:
            os.dup2(opened.fileno(), stream.fileno())
    sys.exit(main(arguments))


def set_values(*texts: str) -> list[str]:
    """Return the options of a command that set these values."""
    return [word for text in texts for word in ("--set", text)]


def stage(arguments: Sequence[str], cwd: Path) -> Run:
    """Stage a run directory with `render ARGUMENTS`."""
    done = run_tool(["render", *arguments], cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return open_run(Path(done.stdout.partition("dlperf-slurm resume ")[2].strip()))


def find_states(run: Run) -> dict[str, str]:
    """Return the state of each array task by its marker, asking the scheduler."""
    states = Tracker(run).refresh(ask_scheduler=True)
    return {state.task.marker: state.state for state in states}


def find_details(run: Run) -> dict[str, str]:
    states = Tracker(run).refresh(ask_scheduler=True)
    return {state.task.marker: state.detail for state in states}


def await_that(
    is_so: Callable[[], object],
    what: str,
    seconds: float = DEADLINE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Poll until `is_so()`; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(poll_seconds)


def await_line(process: "subprocess.Popen[str]", words: str) -> str:
    """Read the output of a process to the line with these words, and return that."""
    line = ""
    while words not in line:
        line = process.stdout.readline()
        assert line, process.stderr.read()
    return line


def has_marker(run: Run, marker: str, kind: str) -> bool:
    """Return whether any start of an array task left this kind of marker."""
    return any(kind == one for _, one in list_markers(run.path).get(marker, ()))


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
