"""The tool as a user calls it, in a process of its own, and what its run directories say."""

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

# a hang ends; a run of nine array tasks on a machine with other work is none
COMMAND_SECONDS = 900.0
DEADLINE_SECONDS = 60.0
POLL_SECONDS = 0.05
# The forking has a socket in this folder, which is chosen here once and for all: tests have one
# for temporary files whose path is too long for a socket.
multiprocessing.util.get_temp_dir()
# what a report imports takes most of its time, and most commands end in one
forking = multiprocessing.get_context("forkserver")
forking.set_forkserver_preload(
    ["pytest", "duckdb", "matplotlib.figure", "dlperf_slurm.interface", "dlperf_slurm.cli.report"]
)


def start_tool(
    arguments: Sequence[str], cwd: Path, env: Optional[Mapping[str, str]] = None
) -> "subprocess.Popen[str]":
    """`python -m dlperf_slurm ARGUMENTS`, with `env` on top of this environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "dlperf_slurm", *arguments],
        cwd=cwd,
        env=make_env(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell lets what it starts in the background ignore Ctrl-C, and so all that these start
        preexec_fn=heed_interrupts,
    )


def make_env(env: Optional[Mapping[str, str]]) -> dict[str, str]:
    """This environment with `env` on top, in which the tool is the one that these tests import."""
    whole_env = {**os.environ, **(env or {})}
    paths = [str(Path(dlperf_slurm.__file__).parents[1]), whole_env.get("PYTHONPATH", "")]
    return {**whole_env, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def run_tool(
    arguments: Sequence[str], cwd: Path, env: Optional[Mapping[str, str]] = None
) -> "subprocess.CompletedProcess[str]":
    """The same to its end, forked of a process that has imported the tool already."""
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
    """The same without a word about an interrupt; what it prints is in these files."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    heed_interrupts()
    for stream, file in zip((sys.stdout, sys.stderr), files):
        with file.open("wb") as opened:
            os.dup2(opened.fileno(), stream.fileno())
    sys.exit(main(arguments))


def stage(arguments: Sequence[str], cwd: Path) -> Run:
    """`render ARGUMENTS`: a run directory that waits for `resume`."""
    done = run_tool(["render", *arguments], cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return open_run(Path(done.stdout.partition("dlperf-slurm resume ")[2].strip()))


def find_states(run: Run) -> dict[str, str]:
    """State of each array task by its marker, asked of the scheduler here and now."""
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
    """Poll until `is_so()`; fails with `what` did not come about."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(poll_seconds)


def has_marker(run: Run, marker: str, kind: str) -> bool:
    """Whether any start of an array task left this marker."""
    return any(kind in kinds for kinds in list_markers(run.path).get(marker, {}).values())


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
