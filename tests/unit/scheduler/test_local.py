"""The local site's array jobs, as real processes with a stand-in for the ranks, and its budget."""

import contextlib
import functools
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from support import fake_environment, local_runs
from support.local_runs import list_attempt_dirs
from support.problems import assert_problem
from support.tool import await_that, find_details, find_states, has_marker, run_tool

from dlperf_slurm.config.folders import get_host_name
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs.journal import (
    CANCELLED,
    JOURNAL_FILE,
    SUBMITTED,
    read_journal,
)
from dlperf_slurm.jobs.run_directory import Run, RunTask
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.cancel import cancel_run
from dlperf_slurm.scheduler.local import TimeBudget
from dlperf_slurm.scheduler.track import Tracker
from dlperf_slurm.slurm_client import DEVICE_VARIABLES


@pytest.fixture
def stage_local(home, own_machine_lock):
    """Stages runs with a machine lock of their own; what hangs in them is ended."""
    yield functools.partial(local_runs.stage_local, home)
    for path in home.glob("results/*/scripts/*.local"):
        local.terminate(path.read_text(), path.parents[1])
    for path in home.glob("results/*/cases/*/*/*/pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(path.read_text()), signal.SIGKILL)


def submit(run: Run, *options: str) -> "subprocess.CompletedProcess[str]":
    return run_tool(["resume", str(run.path), *options], run.path.parent)


def count_all_starts(run: Run):
    return [fake_environment.count_starts(path) for path in list_attempt_dirs(run)]


def find_runner(run: Run, group_id: str = "1n1g") -> int:
    job_id = local.read_claim(run.path, group_id)
    assert job_id is not None
    return int(job_id.split("-")[1])


@pytest.mark.integration
def test_files_of_a_run_have_its_permissions_whatever_the_umask(stage_local):
    run = stage_local(settings=['umask="027"'])
    before = os.umask(0)
    try:
        done = submit(run, "--wait")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = [path for path in run.path.rglob("*") if not path.is_symlink()]
    assert {"submit.lock", "1n1g.local", "report.html"} <= ({path.name for path in paths})
    assert not [path for path in paths if path.stat().st_mode & 0o027]
    # the group may read, also where the shell's umask says that nobody may
    os.umask(0o077)
    try:
        (run.path / "report" / "report.html").unlink()
        assert run_tool(["report", str(run.path)], run.path.parent).returncode == 0
    finally:
        os.umask(before)
    assert (run.path / "report" / "report.html").stat().st_mode & 0o777 == 0o640


@pytest.mark.integration
def test_setup_that_fails_is_named(stage_local, monkeypatch):
    # no scheduler hands out devices here
    for name in DEVICE_VARIABLES:
        monkeypatch.setenv(name, "2")
    setup = f'environments.pytorch.setup=["(exit $((1 + {" + ".join(DEVICE_VARIABLES)})))"]'
    run = stage_local(repeats=1, settings=[setup])
    assert submit(run, "--wait").returncode == 5
    assert find_states(run) == {"1n1g.0": "FAILED"}
    detail = find_details(run)["1n1g.0"]
    assert detail.startswith("no record, exit code 69: ")
    assert "failed with exit code 7" in detail
    assert fake_environment.count_starts(list_attempt_dirs(run)[0]) == 0


@pytest.mark.integration
@pytest.mark.slow
def test_launches_that_fail_alike_leave_the_others_for_a_retry(stage_local, home):
    setup = home / "environment.sh"
    run = stage_local(repeats=5, settings=[f'environments.pytorch.setup=["source {setup}"]'])
    assert submit(run, "--wait").returncode == 5
    assert list(find_states(run).values()) == ["FAILED"] * 3 + ["CANCELLED"] * 2
    detail = find_details(run)["1n1g.4"]
    assert_problem(detail, says=("not started", "several array tasks failed"))
    assert str(setup) in detail
    assert detail.endswith(f"`dlperf-slurm retry {run.path}`")
    setup.touch()
    again = run_tool(["retry", str(run.path), "--wait"], run.path.parent)
    assert again.returncode == 0, again.stderr
    assert count_all_starts(run) == [0] * 5 + [1] * 5


@pytest.mark.integration
@pytest.mark.parametrize("must_wait", [False, True])
def test_whole_group_of_a_script_is_ended(tmp_path, monkeypatch, must_wait):
    """Also what ignores SIGTERM, and what a script has left that ended at once by itself."""
    monkeypatch.setattr(local, "TERMINATION_GRACE_SECONDS", 0.5)
    child = "trap '' TERM; echo $BASHPID > pid; for ((i = 0; i < 600; i++)); do sleep 0.1; done"
    code = f"({child}) &\nwhile [ ! -s pid ]; do sleep 0.01; done"
    script = f"{code}\nwait" if must_wait else code
    process = subprocess.Popen(["bash", "-c", script], cwd=tmp_path, start_new_session=True)
    await_that(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "a child")
    pid = int((tmp_path / "pid").read_text())
    assert local.has_processes(process.pid)
    local.end_process_group(process)
    assert not local.has_processes(process.pid)
    assert local.make_job_id(pid) is None
    assert process.wait(10) in (0, -signal.SIGTERM)


@pytest.mark.integration
def test_time_limit_ends_a_task_and_the_next_goes_on(stage_local):
    run = stage_local()
    fake_environment.choose_behaviour(list_attempt_dirs(run)[0], "hang")
    command = local.make_command(run.path, "1n1g", 2, local.TimeLimit(seconds=3))
    assert subprocess.run(command).returncode == 0
    submit(run, "--wait")
    assert find_states(run) == {"1n1g.0": "TIMEOUT", "1n1g.1": "COMPLETED"}


@pytest.mark.integration
@pytest.mark.parametrize("is_journaled", [True, False])
def test_cancel_ends_what_runs_and_what_waits(stage_local, is_journaled):
    """Also an array job whose submission was cut short before it was in the journal."""
    run = stage_local(repeats=3)
    fake_environment.choose_behaviour(list_attempt_dirs(run)[0], "hang")
    submit(run)
    await_that(lambda: sum(count_all_starts(run)), "the first array task runs")
    runner = find_runner(run)
    if not is_journaled:
        journal = run.path / JOURNAL_FILE
        lines = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(x for x in lines if json.loads(x)["event"] != SUBMITTED))
    done = run_tool(["cancel", str(run.path)], run.path.parent)
    assert (done.returncode, done.stdout.split()[0]) == (0, "3"), done.stderr
    await_that(lambda: not is_running(runner), "the runner ends")
    assert set(find_states(run).values()) == {"CANCELLED"}
    assert count_all_starts(run) == [1, 0, 0]
    assert run_tool(["wait", str(run.path)], run.path.parent).returncode == 5


@pytest.mark.integration
def test_cancel_while_another_run_has_the_machine(stage_local):
    run = stage_local()
    with local.lock_machine():
        submit(run)
        runner = find_runner(run)
        run_tool(["cancel", str(run.path)], run.path.parent)
        await_that(lambda: not is_running(runner), "the runner ends")
    assert set(find_states(run).values()) == {"CANCELLED"}
    assert count_all_starts(run) == [0, 0]


def list_places():
    """Of those who stand in this user's line."""
    return list((Path(tempfile.gettempdir()) / f"dlperf-slurm-{os.getuid()}").iterdir())


@pytest.mark.integration
def test_who_was_killed_keeps_nobody_waiting(stage_local):
    stage_local()
    code = "with local.lock_machine(): print(flush=True), input()"
    with subprocess.Popen(
        [sys.executable, "-c", f"from dlperf_slurm.scheduler import local\n{code}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as first:
        first.stdout.readline()
        assert len(list_places()) == 1
        first.kill()
    cancelled = threading.Event()
    patience = threading.Timer(60, cancelled.set)
    patience.start()
    with local.lock_machine(cancelled):
        patience.cancel()
        assert not cancelled.is_set()
        assert len(list_places()) == 1
    assert list_places() == []


@pytest.mark.integration
def test_run_of_another_host_is_neither_lost_nor_cancelled_from_here(stage_local, monkeypatch):
    run = stage_local()
    with local.lock_machine():
        submit(run)
        here = get_host_name()
        monkeypatch.setattr(local, "get_host_name", lambda: "login2")
        states = Tracker(run).refresh(ask_scheduler=True)
        assert {state.state for state in states} == {"PENDING"}
        assert_problem(states[0].detail, says=(here,))
        with pytest.raises(SchedulerError, match=here):
            cancel_run(run, print)
        monkeypatch.undo()
    assert CANCELLED not in [event.event for event in read_journal(run.path)]


@pytest.mark.integration
def test_cancel_of_what_has_ended_leaves_no_trace(stage_local):
    run = stage_local()
    submit(run, "--wait")
    assert run_tool(["cancel", str(run.path)], run.path.parent).stdout.startswith("0 array tasks")
    assert CANCELLED not in [event.event for event in read_journal(run.path)]


@pytest.mark.integration
def test_runner_that_was_killed_leaves_its_tasks_lost(stage_local):
    run = stage_local(repeats=3)
    fake_environment.choose_behaviour(list_attempt_dirs(run)[1], "hang")
    submit(run)
    await_that(lambda: count_all_starts(run)[1], "the second array task runs")
    await_that(lambda: has_marker(run, "1n1g.0", "ended"), "the first array task ended")
    runner = find_runner(run)
    os.kill(runner, signal.SIGKILL)
    await_that(lambda: not is_running(runner), "the runner is gone")
    assert find_states(run) == {"1n1g.0": "COMPLETED", "1n1g.1": "LOST", "1n1g.2": "LOST"}


@pytest.mark.integration
def test_second_runner_of_a_group_runs_nothing(stage_local):
    run = stage_local()
    submit(run, "--wait")
    second = subprocess.run(
        [sys.executable, "-m", "dlperf_slurm.scheduler.local", str(run.path), "1n1g", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert second.returncode == 1
    assert submit(run).returncode == 0
    assert len([e for e in read_journal(run.path) if e.event == SUBMITTED]) == 1
    assert count_all_starts(run) == [1, 1]


def is_running(pid: int) -> bool:
    return local.make_job_id(pid) is not None


@pytest.mark.parametrize(
    "job_id", ["", "42", "--user=victim", "local-0-1@host", "local-99999999999999999999-1@host"]
)
def test_what_is_no_id_of_a_local_job_is_no_process(job_id, tmp_path):
    assert not local.is_alive(job_id)
    local.terminate(job_id, tmp_path)


def test_runner_of_this_run_is_ended_and_no_other_process(tmp_path):
    """Whoever writes a journal can put the number and start time of any process into it."""
    run_dir, other = tmp_path / "run", tmp_path / "other"
    run_dir.mkdir()
    other.mkdir()
    command = [sys.executable, "-c", f"import time; time.sleep(60) # {local.MODULE}"]
    runners = [[*command, local.MODULE, str(folder), "1n1g", "1"] for folder in (other, run_dir)]
    processes = [subprocess.Popen(words) for words in (command, *runners)]
    try:
        for process in processes:
            wait_for_command(process)
            job_id = local.make_job_id(process.pid)
            assert local.is_alive(job_id)
            local.terminate(job_id, run_dir)
        processes[-1].wait(timeout=30)
        assert [process.poll() for process in processes[:2]] == [None, None]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for_command(process):
    """Until the process has become the program that it was started for."""
    path = Path(f"/proc/{process.pid}/cmdline")
    await_that(lambda: local.MODULE.encode() in path.read_bytes(), "the runner runs")


JOB_ID = "local-1-1@here"
ONE_MINUTE = local.TimeLimit(60)
PLANTS = {
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to("../precious"),
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
        local.run_array_task(tmp_path, "1n1g", 0, JOB_ID, ONE_MINUTE, threading.Event())
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
    command = local.make_command(home / "no-run", "1n1g", 0, ONE_MINUTE)
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": ""}, capture_output=True)
    assert b"no-run" in done.stderr
    assert not (home / "pwned").exists()


@pytest.mark.integration
def test_tool_itself_imports_nothing_from_the_working_directory(home):
    (home / "tempfile.py").write_text("open('pwned', 'w')\n", encoding="utf-8")
    (home / "argparse.py").write_text("open('pwned', 'w')\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "dlperf_slurm", "status"],
        env={**os.environ, "PYTHONPATH": str(local.Path(local.__file__).parents[2])},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, "no such folder" in done.stderr) == (2, True), done.stderr
    assert not (home / "pwned").exists()


ALL = ["a/r1/a1", "a/r2/a1", "a/r3/a1", "b/r1/a1", "b/r2/a1", "b/r3/a1"]
BY_REPEAT = sorted(ALL, key=lambda name: name[2:])
OF_ONE_CASE = ["a/r1/a1", "a/r2/a1", "a/r3/a1", "a/r4/a1"]


@pytest.mark.parametrize(
    ("names", "within_seconds", "task_seconds", "begun"),
    [
        # without an end all, in the order of the array
        (ALL, 0, [100], ALL),
        # each case once, however slow it is
        (ALL, 5, [10], BY_REPEAT[:2]),
        # what would not end in time is left out
        (ALL, 59, [10], BY_REPEAT[:5]),
        (ALL, 60, [10], BY_REPEAT),
        # after 50 of 75 seconds another of 10 would fit, but one as long as the longest would not
        (OF_ONE_CASE, 75, [30, 10, 10], OF_ONE_CASE[:3]),
        (OF_ONE_CASE, 75, [10, 30, 10], OF_ONE_CASE[:3]),
        # what is tried again is begun after the time
        (["a/r1/a1", "a/r2/a1", "a/r2/a2"], 5, [10], ["a/r1/a1", "a/r2/a2"]),
    ],
)
def test_tasks_are_begun_that_end_in_time(names, within_seconds, task_seconds, begun):
    now = 1000.0
    budget = TimeBudget(within_seconds, lambda: now)
    durations = itertools.cycle(task_seconds)
    found = []
    tasks = [RunTask("1n1g", number, f"cases/{name}") for number, name in enumerate(names)]
    for task in budget.order(tasks):
        if budget.has_time_for(task):
            found.append(task.attempt_dir.partition("/")[2])
            now += next(durations)
            budget.note_end()
    assert found == begun


@pytest.mark.integration
def test_report_says_what_was_left_out_and_a_retry_measures_it(stage_local, home):
    run = stage_local(repeats=3)
    path = run.path / "manifest.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, "within_seconds": 0.1}), encoding="utf-8")
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(find_states(run).values()) == ["COMPLETED", "SKIPPED", "SKIPPED"]
    assert_problem(done.stdout, says=("1 of 1 repeats measured", "2 not run", "--within"))
    page = (run.path / "report" / "report.html").read_text(encoding="utf-8")
    assert_problem(page, says=("2 more", "--within"))
    again = run_tool(["retry", str(run.path), "--wait"], home)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "retrying 2 of 3 array tasks" in again.stdout
    assert "2/2 done: 2 COMPLETED" in again.stdout
    assert "3 of 3 repeats measured" in again.stdout
    assert "--within" not in again.stdout
