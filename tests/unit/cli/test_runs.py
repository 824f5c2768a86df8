"""Errors of submit, resume, retry and wait end with the command that goes on."""

import shutil

import pytest
from builders import journal_state, submit_run, write_matrix, write_program
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.jobs.journal import hold_submit_lock
from dlperf_slurm.jobs.run_ownership import mark_own
from dlperf_slurm.scheduler.submitter import AGAIN_SECONDS

DEAD = "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1"
CONFIG = "echo 'ClusterName = tiny'; echo 'MaxArraySize = 1001'"
SITE = 'scheduler = "slurm"\ndevice = "cpu"\n'


@pytest.fixture
def failed_run(cluster, staged_run):
    """Make a run of the user's own whose array tasks have all failed."""
    mark_own(staged_run)
    submit_run(staged_run, lambda line: None)
    for task in staged_run.read_all_tasks():
        journal_state(staged_run, task, "FAILED")
    return staged_run


def fail(capsys, *words):
    """Return the exit code of a command, and the last line of its error."""
    exit_code = main([str(word) for word in words])
    return exit_code, capsys.readouterr().err.rstrip("\n").rpartition("\n")[2]


def kill_controller(bin_dir):
    for name in ("sbatch", "scontrol", "squeue"):
        write_program(bin_dir, name, DEAD)


def write_inputs(home):
    (home / "tiny.toml").write_text(SITE, encoding="utf-8")
    write_matrix()
    return ["submit", "matrix.toml", "--site", "./tiny.toml"]


def test_submission_that_fails_before_anything_is_written(cluster, home, capsys):
    words = write_inputs(home)
    line = "To continue: dlperf-slurm submit matrix.toml --site ./tiny.toml"
    # the environment is missing
    assert fail(capsys, *words) == (4, line)
    kill_controller(cluster)
    assert fail(capsys, *words) == (3, line)
    assert not (home / "results").exists()
    _, line = fail(capsys, *words, "--set", "env.WANDB_API_KEY=secret")
    assert "WANDB_API_KEY" in line
    assert "secret" not in line


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
    assert_problem(told.out, says=("scheduler", "again", "scontrol"))
    assert told.err.endswith("submit matrix.toml --site ./tiny.toml --wait\n")


def remove_task_list(run):
    run.get_tasks_path("1n2g").unlink()


LIMIT = "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"


@pytest.mark.parametrize(
    ("programs", "change"),
    [
        (dict.fromkeys(("sbatch", "scontrol", "squeue"), DEAD), None),
        ({"sbatch": "[ $1 = --test-only ] || { echo 'no such' >&2; exit 1; }"}, None),
        ({"sbatch": "echo 'Invalid account' >&2; exit 1"}, None),
        ({"sbatch": f"[ $1 = --test-only ] || {{ {LIMIT}; }}"}, None),
        ({"sbatch": "echo Welcome"}, None),
        ({"srun": None}, None),
        ({"sbatch": None}, None),
        ({}, remove_task_list),
    ],
)
def test_resume(cluster, staged_run, capsys, programs, change):
    for name, script in programs.items():
        if script is None:
            (cluster / name).unlink()
        else:
            write_program(cluster, name, script)
    if change:
        change(staged_run)
    exit_code, line = fail(capsys, "resume", staged_run.path)
    assert exit_code in (2, 3)
    assert f"dlperf-slurm resume {staged_run.path}" in line


def test_resume_on_a_full_disk(cluster, staged_run, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.jobs.disk_space.TASK_BYTES", 2**60)
    exit_code, line = fail(capsys, "resume", staged_run.path)
    assert exit_code in (2, 3)
    assert f"dlperf-slurm resume {staged_run.path}" in line


@pytest.mark.parametrize(("command", "name"), [("resume", "staged_run"), ("retry", "failed_run")])
def test_beside_another_submission(cluster, request, capsys, command, name):
    run = request.getfixturevalue(name)
    with hold_submit_lock(run.path):
        exit_code, line = fail(capsys, command, run.path)
    assert (exit_code, line) == (3, f"To continue: dlperf-slurm {command} {run.path}")


def test_wait_of_a_run_that_is_away_for_long(cluster, failed_run, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.scheduler.follow.AWAY_SECONDS", -1.0)
    monkeypatch.setattr(
        "dlperf_slurm.scheduler.follow.Tracker.refresh",
        lambda tracker, ask_scheduler: (failed_run.path / "gone").stat(),
    )
    exit_code, line = fail(capsys, "wait", failed_run.path)
    assert (exit_code, line) == (2, f"To continue: dlperf-slurm wait {failed_run.path}")


def kill(run, bin_dir):
    kill_controller(bin_dir)


def break_site(run, bin_dir):
    shutil.copy(run.path / "matrix.toml", run.path / "site.toml")


@pytest.mark.parametrize(
    ("command", "change", "code", "again"),
    [
        ("retry", kill, 3, "retry"),
        ("wait", lambda run, bin_dir: None, 5, "retry"),
        # it cannot stage what it would try again
        ("wait", break_site, 2, "wait"),
    ],
)
def test_failed_run(cluster, failed_run, capsys, command, change, code, again):
    change(failed_run, cluster)
    line = f"To continue: dlperf-slurm {again} {failed_run.path}"
    assert fail(capsys, command, failed_run.path) == (code, line)
