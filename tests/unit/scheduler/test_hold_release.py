"""What `wait` releases by itself, how often, and what it leaves held."""

import itertools
import shutil

import pytest
from builders import write_program
from support.problems import assert_problem

from dlperf_slurm.jobs import disk_space
from dlperf_slurm.jobs.run_directory import RunTask
from dlperf_slurm.scheduler import hold_release
from dlperf_slurm.scheduler.hold_release import RELEASES, Releaser
from dlperf_slurm.scheduler.state import PENDING, RUNNING, TaskState

FULL = "exit code 73 on n1: the disk at /shared cannot be written from n1, 0 MiB are free: No space"
# each is a poll of its own
POLLS = itertools.count(1)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(hold_release, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def calls(bin_dir, tmp_path):
    """Return a function that lists the calls of scontrol."""
    log = tmp_path / "calls"
    log.touch()
    write_program(bin_dir, "scontrol", f'echo "$@" >> {log}')
    return lambda: log.read_text(encoding="utf-8").splitlines()


def hold(run, cause):
    markers = run.path / "markers"
    markers.mkdir(exist_ok=True)
    (markers / "1n1g.held").symlink_to(cause)
    (markers / "1n1g.3.unlaunched").symlink_to(cause)


def make_state(reason, array_task_id=0, state=PENDING):
    return TaskState(RunTask("1n1g", array_task_id, "cases/case/r1/a1"), "7", state, reason)


HELD = [make_state("JobHeldUser"), make_state("JobHeldUser", 1), make_state("", 2, RUNNING)]


def test_group_held_for_a_full_disk_is_released_once_there_is_room(staged_run, calls):
    hold(staged_run, FULL)
    releaser = Releaser(staged_run, launch_tries=1)
    (line,) = releaser.release(HELD, poll=next(POLLS))
    assert_problem(line, says=("array job 7", FULL, "released"))
    # the queue is asked only now and then
    assert releaser.release(HELD, poll=next(POLLS)) == []
    assert calls() == ["release 7"]
    assert list((staged_run.path / "markers").iterdir()) == []


def test_group_stays_held_while_the_disk_is_full(staged_run, calls, monkeypatch):
    hold(staged_run, FULL)
    monkeypatch.setattr(disk_space, "measure_disk", lambda path: (0, 2**30))
    assert Releaser(staged_run, launch_tries=1).release(HELD, poll=1) == []
    assert calls() == []


@pytest.mark.parametrize(
    ("cause", "tries", "count"),
    [
        # a disk that fills up again and again is left to the user
        (FULL, 1, RELEASES),
        # nothing could be said of why
        ("exit code 1 on n1: ", 0, 0),
        ("exit code 1 on n1: ", 1, 1),
        ("exit code 69 on n1: source /nonexistent", 1, 0),
        ("", 1, 0),
    ],
)
def test_group_is_released_as_often_as_its_cause_allows(staged_run, calls, cause, tries, count):
    releaser = Releaser(staged_run, tries)
    for _ in range(RELEASES + 2):
        if cause:
            hold(staged_run, cause)
        releaser.release(HELD, poll=next(POLLS))
        shutil.rmtree(staged_run.path / "markers", ignore_errors=True)
    assert calls() == ["release 7"] * count


@pytest.mark.parametrize("tries", [0, 2])
def test_task_whose_node_could_not_start_it_is_released_as_often_as_the_site_says(
    staged_run, calls, tries
):
    releaser = Releaser(staged_run, tries)
    states = [make_state("launch failed requeued held", 4), make_state("Priority", 5)]
    lines = []
    for poll in (next(POLLS) for _ in range(4)):
        lines += releaser.release(states, poll)
        # states are looked at each second, and asked for every few minutes
        assert releaser.release(states, poll) == []
    assert calls() == ["release 7_4"] * tries
    assert len(lines) == tries


def test_release_that_fails_is_tried_again(staged_run, bin_dir, calls, tmp_path):
    hold(staged_run, FULL)
    releaser = Releaser(staged_run, launch_tries=1)
    script = (bin_dir / "scontrol").read_text(encoding="utf-8")
    write_program(bin_dir, "scontrol", "echo Unable to contact slurm controller >&2; exit 1")
    assert releaser.release(HELD, poll=next(POLLS)) == []
    (bin_dir / "scontrol").write_text(script, encoding="utf-8")
    assert len(releaser.release(HELD, poll=next(POLLS))) == 1
    assert calls() == ["release 7"]


def test_plain_job_is_released_by_its_own_id(staged_run, calls):
    path = staged_run.get_tasks_path("1n1g")
    path.write_text(path.read_text(encoding="utf-8").replace("\t-\t", "\t0\t"), encoding="utf-8")
    states = [
        make_state("launch failed requeued held")._replace(task=task)
        for task in staged_run.read_tasks("1n1g")
    ]
    (line,) = Releaser(staged_run, launch_tries=1).release(states, poll=1)
    assert (line.split()[1], calls()) == ("7", ["release 7"])
