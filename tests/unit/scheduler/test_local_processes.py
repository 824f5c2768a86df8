"""Which processes the local site takes for its own, and from where they import."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from builders import print_queue, show_queue, write_program
from support.tool import await_that

from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs.journal import SUBMITTED, Event, append_event
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.cancel import cancel_run

NONE_OF_OURS = [
    "",
    "42",
    "--user=victim",
    "local-1",
    "local-0-1@host",
    "local--1-1@host",
    "local-x-1@host",
    "local-99999999999999999999-1@host",
    "7.planted",
]


@pytest.mark.parametrize("job_id", NONE_OF_OURS)
def test_what_is_no_id_of_a_local_job_is_no_process(job_id, tmp_path):
    assert not local.is_alive(job_id)
    local.terminate(job_id, tmp_path)


@pytest.fixture
def bystander():
    """Start a process of the same user that belongs to no run."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_process_that_runs_no_array_task_is_left_alone(bystander, tmp_path):
    """Whoever writes a journal can put the number and start time of any process into it."""
    job_id = local.make_job_id(bystander.pid)
    assert local.is_alive(job_id)
    local.terminate(job_id, tmp_path)
    time.sleep(0.3)
    assert bystander.poll() is None


def start_runner(run_dir):
    """Start a process that looks like the runner of this run, and sleeps."""
    program = f"import time; time.sleep(60) # {local.MODULE}"
    command = [sys.executable, "-c", program, local.MODULE, str(run_dir), "1n1g", "1"]
    return subprocess.Popen(command)


def test_runner_of_this_run_is_ended_and_that_of_another_is_not(tmp_path):
    run_dir, other = tmp_path / "run", tmp_path / "other"
    run_dir.mkdir()
    other.mkdir()
    processes = [start_runner(run_dir), start_runner(other)]
    try:
        for process in processes:
            wait_for_command(process)
            local.terminate(local.make_job_id(process.pid), run_dir)
        processes[0].wait(timeout=30)
        assert processes[1].poll() is None
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for_command(process):
    """Until the process has become the program that it was started for."""
    path = Path(f"/proc/{process.pid}/cmdline")
    await_that(lambda: local.MODULE.encode() in path.read_bytes(), "the runner runs")


JOB_ID = "local-1-1@here"
LIMIT = local.TimeLimit(60)
PLANTS = {
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to("../precious"),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe"),
    "zeros": lambda path: os.close(os.open(path, os.O_CREAT)) or os.truncate(path, 2**40),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_claim_that_somebody_planted_names_nobody_and_is_not_taken(tmp_path, plant):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "precious").write_text("local-1-1@here")
    PLANTS[plant](local.get_claim_path(tmp_path, "1n1g"))
    assert local.read_claim(tmp_path, "1n1g") is None
    assert not local.claim_group(tmp_path, "1n1g", "local-2-2@here")
    assert (tmp_path / "precious").read_text() == "local-1-1@here"


def test_log_of_an_array_task_is_not_written_through_a_link(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "scripts/1n1g.sbatch").write_text("echo theirs; :")
    (tmp_path / "scripts/1n1g_0.log").symlink_to("../precious")
    with pytest.raises(FileProblem, match=r"1n1g_0\.log: .*link"):
        local.run_array_task(tmp_path, "1n1g", 0, JOB_ID, LIMIT, threading.Event())
    assert (tmp_path / "precious").read_text() == "mine"


def test_array_task_is_warned_before_its_time_limit_and_ended_at_it(tmp_path):
    for name in ("scripts", "markers"):
        (tmp_path / name).mkdir()
    hang = "for ((i = 0; i < 600; i++)); do sleep 0.1; done"
    note = f">> {tmp_path}/heard"
    text = f"trap 'echo USR1 {note}' USR1\ntrap 'echo TERM {note}; exit 143' TERM\n{hang}\n"
    (tmp_path / "scripts/1n1g.sbatch").write_text(text)
    limit = local.TimeLimit(seconds=3, warning_seconds=2)
    local.run_array_task(tmp_path, "1n1g", 0, JOB_ID, limit, threading.Event())
    assert (tmp_path / "heard").read_text() == "USR1\nTERM\n"
    assert (tmp_path / "markers/1n1g.0.killed").read_text() == "TIMEOUT"


def test_module_of_pythons_name_in_the_working_directory_is_not_run(home):
    for name in ("tempfile.py", "json.py", "runpy.py", "fcntl.py"):
        (home / name).write_text("open('pwned', 'w')\n", encoding="utf-8")
    command = local.make_command(home / "no-run", "1n1g", 0, LIMIT)
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": ""}, capture_output=True)
    assert b"no-run" in done.stderr
    assert not (home / "pwned").exists()


@pytest.mark.integration
def test_tool_itself_imports_nothing_from_the_working_directory(home):
    (home / "tempfile.py").write_text("open('pwned', 'w')\n", encoding="utf-8")
    (home / "argparse.py").write_text("open('pwned', 'w')\n", encoding="utf-8")
    package = str(local.Path(local.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "dlperf_slurm", "status"],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "contains no runs" in done.stderr) == (2, True), done.stderr
    assert not (home / "pwned").exists()


@pytest.mark.parametrize("job_id", ["--user=victim", "1 2", "0", "-1", "all", "\u0663"])
def test_what_the_journal_calls_a_job_does_not_reach_scancel(staged_run, bin_dir, job_id):
    write_program(bin_dir, "scancel", f'echo "$@" >> {bin_dir}/cancelled')
    show_queue(bin_dir)
    time = "2024-05-01T12:00:00Z"
    append_event(staged_run.path, Event(SUBMITTED, time, "1n1g", job_id))
    assert cancel_run(open_run(staged_run.path), print) == 0
    assert not (bin_dir / "cancelled").exists()


def test_numbers_of_the_queue_reach_scancel(staged_run, bin_dir):
    write_program(bin_dir, "scancel", f'echo "$@" >> {bin_dir}/cancelled')
    rows = ("42_[0-1]|PENDING||Priority", "--user=victim|PENDING||Priority", "7_0|COMPLETED||None")
    shown = print_queue(*rows, name=f"{staged_run.run_id}.1n1g")
    ended = f"[ ! -e {bin_dir}/cancelled ] || {{ {print_queue()}; exit; }}"
    write_program(bin_dir, "squeue", f"{ended}; {shown}")
    assert cancel_run(open_run(staged_run.path), print) == 2
    assert (bin_dir / "cancelled").read_text() == "42\n"
