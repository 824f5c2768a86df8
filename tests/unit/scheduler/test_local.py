"""The local site's array jobs: real scripts in real processes, with a stand-in for the ranks."""

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from support import fake_environment, local_runs
from support.local_runs import list_attempt_dirs
from support.tool import await_that, find_details, find_states, has_marker, run_tool

from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import RECORD_FILE, Record
from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.jobs.journal import (
    CANCELLED,
    JOURNAL_FILE,
    SUBMITTED,
    hold_submit_lock,
    read_journal,
)
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.cancel import cancel_run
from dlperf_slurm.scheduler.track import Tracker

pytestmark = pytest.mark.integration

LIMIT = "memory_limit_mib_per_device"


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


def test_files_of_a_run_have_its_permissions_whatever_the_umask(stage_local):
    run = stage_local(settings=['umask="027"'])
    before = os.umask(0)
    try:
        done = submit(run, "--wait")
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = [path for path in run.path.rglob("*") if not path.is_symlink()]
    names = {path.name for path in paths}
    assert {"submit.lock", "1n1g.local", "report.html"} <= names
    assert not [path for path in paths if path.stat().st_mode & 0o027]
    # the group may read, also where the shell's umask says that nobody may
    os.umask(0o077)
    try:
        (run.path / "report" / "report.html").unlink()
        assert run_tool(["report", str(run.path)], run.path.parent).returncode == 0
    finally:
        os.umask(before)
    assert (run.path / "report" / "report.html").stat().st_mode & 0o777 == 0o640


def test_log_of_a_script_that_said_more_stays(stage_local):
    run = stage_local()
    script = run.get_script_path("1n1g")
    text = script.read_text(encoding="utf-8")
    script.write_text(text.replace("set -u\n", "set -u\necho a warning >&2\n", 1), encoding="utf-8")
    assert submit(run, "--wait").returncode == 0
    lines = (run.path / "scripts/1n1g_0.log").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "a warning"
    assert lines[1].startswith("what this array task prints is in ")


@pytest.mark.parametrize(("batch_size", "found"), [('"max"', 48), ('"64 -> 40 -> 16"', 40)])
def test_all_repeats_measure_the_batch_that_the_first_one_found(stage_local, batch_size, found):
    run = stage_local(repeats=3, batch_size=batch_size, protocol=f"{LIMIT} = 50")
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    records = [read_json(path / "s0" / RECORD_FILE, Record) for path in list_attempt_dirs(run)]
    assert [record.case.axes.batch_size_per_device for record in records] == [found] * 3
    assert {record.batch_trials for record in records} == {records[0].batch_trials}
    assert max(len(list(path.glob("s0/trials/*"))) for path in list_attempt_dirs(run)[1:]) == 0


def test_search_without_room_for_the_smallest_batch_is_out_of_memory(stage_local):
    run = stage_local(batch_size='"max"', protocol=f"{LIMIT} = 7")
    assert submit(run, "--wait").returncode == 5
    assert find_states(run) == {"1n1g.0": "OUT_OF_MEMORY", "1n1g.1": "OUT_OF_MEMORY"}


def test_array_tasks_of_all_groups_run_one_after_the_other(stage_local):
    run = stage_local(topologies=["1n1g", "1n2g"])
    for path in list_attempt_dirs(run):
        fake_environment.choose_behaviour(path, "nap")
    submit(run, "--wait")
    spans = []
    for path in list_attempt_dirs(run):
        start, end = (line.split()[1] for line in fake_environment.read_log(path).splitlines())
        spans.append((float(start), float(end)))
    spans.sort()
    assert len(spans) == 4
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:]))


def test_killed_rank_fails_its_task_while_the_next_still_runs(stage_local):
    run = stage_local()
    first, second = list_attempt_dirs(run)
    fake_environment.choose_behaviour(first, "killed")
    fake_environment.choose_behaviour(second, "hang")
    submit(run)
    await_that(lambda: fake_environment.count_starts(second), "the second array task runs")
    assert find_states(run) == {"1n1g.0": "FAILED", "1n1g.1": "RUNNING"}


def test_setup_that_fails_is_named(stage_local, monkeypatch):
    # no scheduler hands out devices here
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    run = stage_local(
        repeats=1, settings=['environments.pytorch.setup=["(exit $CUDA_VISIBLE_DEVICES)"]']
    )
    assert submit(run, "--wait").returncode == 5
    assert find_states(run) == {"1n1g.0": "FAILED"}
    detail = find_details(run)["1n1g.0"]
    assert detail.startswith("no record, exit code 69: ")
    assert "failed with exit code 7" in detail
    assert detail.endswith(f"{run.read_all_tasks()[0].attempt_dir}/s0/err")
    assert fake_environment.count_starts(list_attempt_dirs(run)[0]) == 0


@pytest.mark.slow
def test_launches_that_fail_alike_leave_the_others_for_a_retry(stage_local, home):
    setup = home / "environment.sh"
    run = stage_local(repeats=5, settings=[f'environments.pytorch.setup=["source {setup}"]'])
    assert submit(run, "--wait").returncode == 5
    assert list(find_states(run).values()) == ["FAILED"] * 3 + ["CANCELLED"] * 2
    detail = find_details(run)["1n1g.4"]
    assert detail.startswith(
        "not started, because previous array tasks failed to launch in the same way, the last with "
    )
    assert str(setup) in detail
    assert detail.endswith(f"`dlperf-slurm retry {run.path}`")
    setup.touch()
    again = run_tool(["retry", str(run.path), "--wait"], run.path.parent)
    assert again.returncode == 0, again.stderr
    assert count_all_starts(run) == [0] * 5 + [1] * 5


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


def test_time_limit_ends_a_task_and_the_next_goes_on(stage_local):
    run = stage_local()
    fake_environment.choose_behaviour(list_attempt_dirs(run)[0], "hang")
    command = local.make_command(run.path, "1n1g", 2, local.TimeLimit(seconds=3))
    assert subprocess.run(command).returncode == 0
    submit(run, "--wait")
    assert find_states(run) == {"1n1g.0": "TIMEOUT", "1n1g.1": "COMPLETED"}


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


def test_who_had_the_machine_is_last_in_line(stage_local):
    stage_local()
    order = []

    def measure(name):
        for _ in range(4):
            with local.lock_machine():
                order.append(name)
                # longer than between two looks of those who wait
                time.sleep(2 * local.LOOK_SECONDS)

    threads = [threading.Thread(target=measure, args=[name]) for name in "abc"]
    with local.lock_machine():
        for count, thread in enumerate(threads, start=1):
            thread.start()
            await_that(lambda count=count: len(list_places()) == 1 + count, "it stands in line")
    for thread in threads:
        thread.join()
    assert "".join(order) == "abcabcabcabc"


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


def test_run_of_another_host_is_neither_lost_nor_cancelled_from_here(stage_local, monkeypatch):
    run = stage_local()
    with local.lock_machine():
        submit(run)
        here = socket.gethostname()
        monkeypatch.setattr(socket, "gethostname", lambda: "login2")
        states = Tracker(run).refresh(ask_scheduler=True)
        assert {state.state for state in states} == {"PENDING"}
        assert states[0].detail == f"runs on {here}; only there can its state be seen"
        with pytest.raises(SchedulerError, match=f"runs on {here}; cancel it on that host"):
            cancel_run(run, print)
        monkeypatch.undo()
    assert CANCELLED not in [event.event for event in read_journal(run.path)]


def test_cancel_of_what_has_ended_leaves_no_trace(stage_local):
    run = stage_local()
    submit(run, "--wait")
    done = run_tool(["cancel", str(run.path)], run.path.parent)
    assert done.stdout.startswith("0 array tasks")
    assert CANCELLED not in [event.event for event in read_journal(run.path)]


def test_runner_that_was_killed_leaves_its_tasks_lost(stage_local):
    run = stage_local(repeats=3)
    fake_environment.choose_behaviour(list_attempt_dirs(run)[1], "hang")
    submit(run)
    await_that(lambda: count_all_starts(run)[1], "the second array task runs")
    await_that(lambda: has_marker(run, "1n1g.0", "ended"), "the first array task ended")
    runner = find_runner(run)
    os.kill(runner, signal.SIGKILL)
    await_that(lambda: not is_running(runner), "the runner is gone")
    states = find_states(run)
    assert states == {"1n1g.0": "COMPLETED", "1n1g.1": "LOST", "1n1g.2": "LOST"}


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


@pytest.mark.parametrize("command", ["resume", "cancel"])
def test_command_beside_a_submission_is_refused(stage_local, command):
    run = stage_local()
    with hold_submit_lock(run.path):
        done = run_tool([command, str(run.path)], run.path.parent)
    assert done.returncode == 3
    assert "another process is submitting this run" in done.stderr
    assert count_all_starts(run) == [0, 0]
