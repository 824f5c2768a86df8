"""Errors of submit, resume, retry and wait end with the command that goes on."""

import shutil

import pytest
from builders import print_queue, write_matrix, write_program

from dlperf_slurm.cli import main
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.jobs.journal import RESERVE_FILE, STATE, Event, append_event, hold_submit_lock
from dlperf_slurm.jobs.own_runs import mark_own
from dlperf_slurm.scheduler.feed import AGAIN_SECONDS, submit_run

DEAD = "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1"
CONFIG = "echo 'ClusterName = tiny'; echo 'MaxArraySize = 1001'"
SITE = 'scheduler = "slurm"\ndevice = "cpu"\n'


@pytest.fixture
def cluster(bin_dir):
    """Takes every array job, and shows none of them."""
    write_program(bin_dir, "sbatch", "echo 7")
    write_program(bin_dir, "scontrol", CONFIG)
    for name in ("srun", "squeue", "sacct"):
        write_program(bin_dir, name, print_queue())
    return bin_dir


@pytest.fixture
def failed_run(cluster, staged_run):
    """A run of the user's own, of which all array tasks have failed."""
    mark_own(staged_run)
    submit_run(staged_run, lambda line: None)
    for task in staged_run.read_all_tasks():
        event = Event(STATE, format_now(), task.group_id, "7", task.array_task_id, "FAILED")
        append_event(staged_run.path, event)
    return staged_run


def fail(capsys, *words):
    """The exit code of a command, and the last line of its error."""
    exit_code = main([str(word) for word in words])
    return exit_code, capsys.readouterr().err.rstrip("\n").rpartition("\n")[2]


def kill_controller(bin_dir):
    for name in ("sbatch", "scontrol", "squeue"):
        write_program(bin_dir, name, DEAD)


def write_inputs(home):
    (home / "tiny.toml").write_text(SITE, encoding="utf-8")
    write_matrix()
    return ["submit", "matrix.toml", "--site", "./tiny.toml"]


def test_submission_to_a_controller_that_is_away(cluster, home, capsys):
    kill_controller(cluster)
    exit_code, line = fail(capsys, *write_inputs(home))
    assert (exit_code, line) == (
        3, "To go on: dlperf-slurm submit matrix.toml --site ./tiny.toml",
    )  # fmt: skip
    assert not (home / "results").exists()


def test_submission_that_waits_outlasts_a_controller_away_from_the_start(
    cluster, home, capsys, monkeypatch
):
    kill_controller(cluster)
    words = write_inputs(home)

    def sleep(seconds):
        # subprocess sleeps too, for milliseconds, until a program ends
        if seconds == AGAIN_SECONDS:
            write_program(cluster, "scontrol", CONFIG)

    monkeypatch.setattr("time.sleep", sleep)
    # it comes to the missing environment, which is looked for after the plan is made
    assert main([*words, "--wait"]) == 4
    told = capsys.readouterr()
    assert told.out.startswith("the scheduler does not answer, and is asked again: scontrol failed")
    assert told.err.endswith("submit matrix.toml --site ./tiny.toml --wait\n")


def test_submission_without_an_environment(cluster, home, capsys):
    words = write_inputs(home)
    assert fail(capsys, *words) == (
        4, "To go on: dlperf-slurm submit matrix.toml --site ./tiny.toml",
    )  # fmt: skip


def test_secret_of_a_command_line_is_not_repeated(cluster, home, capsys):
    kill_controller(cluster)
    _, line = fail(capsys, *write_inputs(home), "--set", "env.WANDB_API_KEY=secret")
    assert "WANDB_API_KEY" in line
    assert "secret" not in line


def make_controller_silent(run, bin_dir, monkeypatch):
    kill_controller(bin_dir)


def refuse_all(run, bin_dir, monkeypatch):
    write_program(bin_dir, "sbatch", "[ $1 = --test-only ] || { echo 'no such' >&2; exit 1; }")


def find_all_impossible(run, bin_dir, monkeypatch):
    write_program(bin_dir, "sbatch", "echo 'Invalid account' >&2; exit 1")


def limit_all(run, bin_dir, monkeypatch):
    words = "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"
    write_program(bin_dir, "sbatch", f"[ $1 = --test-only ] || {{ {words}; }}")


def print_no_id(run, bin_dir, monkeypatch):
    write_program(bin_dir, "sbatch", "echo Welcome")


def remove_srun(run, bin_dir, monkeypatch):
    (bin_dir / "srun").unlink()


def remove_sbatch(run, bin_dir, monkeypatch):
    (bin_dir / "sbatch").unlink()


def fill_disk(run, bin_dir, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.jobs.room.TASK_BYTES", 2**60)


def take_room_of_journal(run, bin_dir, monkeypatch):
    (run.path / RESERVE_FILE).mkdir()


def remove_task_list(run, bin_dir, monkeypatch):
    run.find_tasks_file("1n2g").unlink()


@pytest.mark.parametrize(
    "breaks",
    [
        make_controller_silent,
        refuse_all,
        find_all_impossible,
        limit_all,
        print_no_id,
        remove_srun,
        remove_sbatch,
        fill_disk,
        take_room_of_journal,
        remove_task_list,
    ],
)
def test_resume(cluster, staged_run, capsys, monkeypatch, breaks):
    breaks(staged_run, cluster, monkeypatch)
    exit_code, line = fail(capsys, "resume", staged_run.path)
    assert exit_code in (2, 3)
    assert f"dlperf-slurm resume {staged_run.path}" in line


@pytest.mark.parametrize(("command", "name"), [("resume", "staged_run"), ("retry", "failed_run")])
def test_beside_another_submission(cluster, request, capsys, command, name):
    run = request.getfixturevalue(name)
    with hold_submit_lock(run.path):
        exit_code, line = fail(capsys, command, run.path)
    assert (exit_code, line) == (3, f"To go on: dlperf-slurm {command} {run.path}")


def test_retry_that_cannot_ask_the_scheduler(cluster, failed_run, capsys):
    kill_controller(cluster)
    exit_code, line = fail(capsys, "retry", failed_run.path)
    assert (exit_code, line) == (3, f"To go on: dlperf-slurm retry {failed_run.path}")


def test_wait_of_a_run_that_is_away_for_long(cluster, failed_run, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.scheduler.follow.AWAY_SECONDS", -1.0)
    monkeypatch.setattr(
        "dlperf_slurm.scheduler.follow.Tracker.refresh",
        lambda tracker, ask_scheduler: (failed_run.path / "gone").stat(),
    )
    exit_code, line = fail(capsys, "wait", failed_run.path)
    assert (exit_code, line) == (2, f"To go on: dlperf-slurm wait {failed_run.path}")


def test_wait_of_a_run_that_failed(cluster, failed_run, capsys):
    exit_code, line = fail(capsys, "wait", failed_run.path)
    assert (exit_code, line) == (5, f"To go on: dlperf-slurm retry {failed_run.path}")


def test_wait_that_cannot_stage_what_it_tries_again(cluster, failed_run, capsys):
    shutil.copy(failed_run.path / "matrix.toml", failed_run.path / "site.toml")
    exit_code, line = fail(capsys, "wait", failed_run.path)
    assert (exit_code, line) == (2, f"To go on: dlperf-slurm wait {failed_run.path}")
