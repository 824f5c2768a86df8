"""Submission and retry against a scheduler of fake programs on PATH, whose every call is kept."""

import os
import subprocess
import sys
from collections import Counter

import pytest
from builders import (
    IMPORT_DIR,
    journal_state,
    make_site,
    show_queue,
    submit_run,
    write_matrix,
    write_program,
)
from support import fake_environment, local_runs
from support.problems import assert_problem
from support.tool import await_that, find_states, run_tool, start_tool

from dlperf_slurm import slurm_client
from dlperf_slurm.cli import main
from dlperf_slurm.config.site import LoadedSite, read_frozen_site
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import EnvironmentMissingError, JournalError, SchedulerError
from dlperf_slurm.jobs import journal
from dlperf_slurm.jobs.journal import (
    CANCELLED,
    REFUSED,
    RESERVE_FILE,
    STAGED,
    SUBMITTED,
    SUBMITTING,
    Event,
    append_event,
    hold_submit_lock,
    read_journal,
)
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.plan import PlannedMatrix, resolve
from dlperf_slurm.jobs.run_directory import HARNESS_FILE
from dlperf_slurm.jobs.run_ownership import mark_own
from dlperf_slurm.jobs.stage import stage_run
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.scheduler import local
from dlperf_slurm.scheduler.local import TimeLimit
from dlperf_slurm.scheduler.retry import stage_retry
from dlperf_slurm.scheduler.submit import (
    find_unsubmitted,
    read_time_limit,
    recover_interrupted,
    submit_group,
)
from dlperf_slurm.scheduler.submitter import AGAIN_SECONDS, Submitter
from dlperf_slurm.scheduler.track import Tracker

MATRIX_OF_BLOCKS = """
model = { name = "resnet50" }
axes = { framework = "pytorch", topology = ["1n1g", "1n2g"], batch_size_per_device = 8 }
protocol = { repeats = 3, blocks = 3 }
"""

GROUPS = ["1n1g", "1n2g", "2n2g"]


def list_submitted(run):
    return [e.group_id for e in read_journal(run.path) if e.event == SUBMITTED]


def count_submissions(home):
    calls = home / "calls"
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def fail_all(run):
    submit_run(run, print)
    for task in run.read_all_tasks():
        journal_state(run, task, "FAILED")


def test_array_job_is_in_the_journal_before_anybody_is_told(cluster, staged_run):
    def stop(line):
        raise BrokenPipeError(line)

    with pytest.raises(BrokenPipeError):
        submit_run(staged_run, stop)
    assert list_submitted(staged_run) == GROUPS[:1]


def test_reader_that_is_gone_stops_no_submission(cluster, staged_run):
    command = [sys.executable, "-m", "dlperf_slurm", "resume", str(staged_run.path)]
    environment = {**os.environ, "PYTHONPATH": IMPORT_DIR}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as tool:
        tool.stdout.close()
        error = tool.stderr.read()
    assert (tool.returncode, error) == (0, b"")
    assert list_submitted(staged_run) == GROUPS


@pytest.mark.parametrize("last", [REFUSED, SUBMITTING])
def test_group_that_was_taken_all_the_same_is_not_submitted_twice(cluster, staged_run, last):
    write_program(cluster, "sbatch", "echo 'Socket timed out' >&2; exit 1")
    with pytest.raises(SchedulerError, match="Socket timed out"):
        submit_run(staged_run, print)
    assert read_journal(staged_run.path)[-1].event == REFUSED
    # a `submit` that was killed has journaled no refusal
    append_event(staged_run.path, Event(last, group_id="1n1g"))
    show_queue(cluster, "77_0|PENDING||", name=f"{staged_run.run_id}.1n1g")
    with hold_submit_lock(staged_run.path):
        assert recover_interrupted(staged_run) == {"1n1g": "77"}


def test_cluster_without_srun_is_a_clear_error_and_begins_nothing(cluster, staged_run):
    (cluster / "srun").unlink()
    with pytest.raises(SchedulerError, match=r"^1n1g .*srun"):
        submit_run(staged_run, print)
    assert {event.event for event in read_journal(staged_run.path)} == {STAGED}


def test_run_without_what_its_scripts_source_is_not_submitted(cluster, staged_run, home, capsys):
    harness = staged_run.path / HARNESS_FILE
    harness.unlink()
    assert main(["resume", str(staged_run.path)]) == 2
    assert f"{harness}: is missing" in capsys.readouterr().err
    assert count_submissions(home) == 0
    assert set(find_unsubmitted(staged_run).values()) == {journal.STAGED}


@pytest.mark.parametrize(
    ("topology", "limit"), [("1n1g", TimeLimit(4 * 60, 0)), ("1n2g", TimeLimit(5 * 60, 60))]
)
def test_time_limit_of_a_local_group_is_the_one_that_was_planned(home, topology, limit):
    site = make_site(scheduler="local", time_limit_minutes={"default": 5, "1n1g": 4})
    file = read_matrix(write_matrix())
    plan = resolve(expand_matrix(file), site, max_array_size=1001)
    run = stage_run(home / "results", PlannedMatrix(file, LoadedSite("local", site, {}), plan), [])
    assert read_time_limit(run, topology) == limit


def test_retry_submits_what_failed_once(cluster, staged_run, capsys):
    fail_all(staged_run)
    assert main(["retry", str(staged_run.path)]) == 0
    assert "retrying 6 of 6 array tasks\n" in capsys.readouterr().out
    assert main(["retry", str(staged_run.path)]) == 0
    assert "no array task needs a retry" in capsys.readouterr().out
    assert list_submitted(staged_run) == [*GROUPS, *(f"{group}-try2" for group in GROUPS)]


def test_retry_whose_environment_is_gone_stages_nothing(cluster, staged_run, capsys):
    fail_all(staged_run)
    site = staged_run.path / "site.toml"
    gone = staged_run.path / "gone"
    venv = read_frozen_site(site).environments["pytorch"].venv
    site.write_text(site.read_text().replace(venv, str(gone)), encoding="utf-8")
    assert main(["retry", str(staged_run.path)]) == EnvironmentMissingError.exit_code
    told = capsys.readouterr().err
    assert f"pytorch: no environment at {gone}" in told
    assert told.endswith(f"To continue: dlperf-slurm retry {staged_run.path}\n")
    assert staged_run.list_group_ids() == GROUPS


def test_retry_that_cannot_ask_the_scheduler_stages_nothing(cluster, staged_run):
    submit_run(staged_run, print)
    write_program(cluster, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(SchedulerError, match="Unable to contact"):
        stage_retry(staged_run)
    assert staged_run.list_group_ids() == GROUPS


def test_group_that_is_staged_twice_in_the_journal_is_one(staged_run):
    append_event(staged_run.path, Event(STAGED, group_id="1n1g"))
    assert staged_run.list_group_ids() == GROUPS


def list_states(run):
    return {state.task.group_id: state.state for state in Tracker(run).refresh(ask_scheduler=True)}


def test_who_follows_hears_of_a_cancellation_by_another_process(cluster, staged_run):
    submit_run(staged_run, print)
    follower = Tracker(staged_run)
    append_event(staged_run.path, Event(CANCELLED, format_now(), detail="1 2 3"))
    assert {state.state for state in follower.refresh(ask_scheduler=True)} == {"CANCELLED"}


def test_copy_without_its_empty_folders_has_states(cluster, staged_run):
    submit_run(staged_run, print)
    (staged_run.path / MARKERS_DIR).rmdir()
    assert list_states(staged_run)["2n2g"] == "UNKNOWN"


def test_all_groups_that_can_never_run_are_named_before_any_is_submitted(staged_run, cluster):
    words = "allocation failure: Requested node configuration is not available"
    answer = f"case $* in *1n2g*|*2n2g*) echo '{words}' >&2; exit 1 ;; esac"
    write_program(cluster, "sbatch", f"{answer}; echo 7")
    said = []
    with pytest.raises(SchedulerError) as caught:
        submit_run(staged_run, said.append, retry_seconds=60)
    says = ("1n2g", "2n2g", words, f"dlperf-slurm resume {staged_run.path}")
    assert_problem(str(caught.value), says=says)
    assert not [line for line in said if "trying again" in line]
    assert list_submitted(staged_run) == []


def test_what_may_be_possible_later_is_left_to_sbatch(staged_run, cluster):
    answer = "[ $1 = --test-only ] && { echo Job violates accounting/QOS policy >&2; exit 1; }"
    write_program(cluster, "sbatch", f"{answer}; echo 7")
    assert submit_run(staged_run, print) == 3


@pytest.mark.parametrize(
    "answer",
    ["123;main\n", "Welcome to tiny\n123 \r\nBalance: 9\n",
     "left:\n1200\nSubmitted batch job 123 on cluster main\n"],
)  # fmt: skip
def test_job_id_is_read_wherever_sbatch_prints_it(answer):
    assert slurm_client.parse_job_id(answer) == "123"


@pytest.mark.parametrize(
    "printed", ["left of your project:\\n1200\\n17\\n", "17\\n1200\\n", "job 17 is yours\\n"]
)
def test_number_that_is_not_the_job_in_the_queue_is_not_believed(cluster, staged_run, printed):
    write_program(cluster, "sbatch", f"[ $1 = --test-only ] || printf '{printed}'")
    show_queue(cluster, "17_[0-2]|PENDING||Priority", name=f"{staged_run.run_id}.1n1g")
    with hold_submit_lock(staged_run.path) as lock:
        assert submit_group(staged_run, "1n1g", lock) == ("17", "")


def test_nothing_is_submitted_that_the_journal_has_no_room_for(cluster, staged_run, home):
    (staged_run.path / RESERVE_FILE).mkdir()
    with pytest.raises(JournalError, match=r"free space .*journal"):
        submit_run(staged_run, print)
    assert count_submissions(home) == 0


def test_job_that_the_journal_could_not_take_is_named(cluster, staged_run, home, monkeypatch):
    refused = [SUBMITTED]
    real = journal.append_events

    def refuse(run_dir, events):
        if events[0].event in refused:
            raise JournalError("the disk is full")
        real(run_dir, events)

    monkeypatch.setattr(journal, "append_events", refuse)
    with pytest.raises(JournalError, match=r"1n1g: array job 1 was submitted.*(?s:.*)resume"):
        submit_run(staged_run, print)
    refused.clear()
    show_queue(cluster, "1_0|PENDING||None", name=f"{staged_run.run_id}.1n1g")
    submit_run(staged_run, print)
    assert (list_submitted(staged_run), count_submissions(home)) == (GROUPS, 3)


@pytest.mark.parametrize("content", [None, b'{"event": "sub'])
def test_damaged_journal_makes_nobody_submit_again(cluster, staged_run, home, content):
    submit_run(staged_run, print)
    path = staged_run.path / "journal.jsonl"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    for number, group_id in enumerate(GROUPS, start=1):
        folder = staged_run.path / staged_run.read_tasks(group_id)[0].attempt_dir
        folder.mkdir(parents=True)
        (folder / "claim").symlink_to(str(number))
    assert submit_run(staged_run, print) == 0
    assert count_submissions(home) == 3
    ids = {e.group_id: e.array_job_id for e in read_journal(staged_run.path) if e.array_job_id}
    assert ids == {"1n1g": "1", "1n2g": "2", "2n2g": "3"}


def test_groups_of_a_lost_journal_are_followed_by_what_the_queue_shows(cluster, staged_run):
    submit_run(staged_run, print)
    (staged_run.path / "journal.jsonl").unlink()
    show_queue(cluster, "7_[0-1]|PENDING||Priority", name=f"{staged_run.run_id}.1n1g")
    states = Tracker(staged_run).refresh(ask_scheduler=True)
    assert [(state.state, state.array_job_id) for state in states[:3]] == [
        ("PENDING", "7"), ("PENDING", "7"), ("STAGED", ""),
    ]  # fmt: skip


DEAD = "sbatch: error: Batch job submission failed: Unable to contact slurm controller"


def test_submission_outlasts_a_controller_that_is_away(cluster, staged_run, home, monkeypatch):
    alive = (cluster / "sbatch").read_text(encoding="utf-8")
    write_program(cluster, "sbatch", f'echo "{DEAD} (connect failure)" >&2; exit 1')
    said = []

    def sleep(seconds):
        # subprocess sleeps too, for milliseconds, until a program ends
        if seconds == AGAIN_SECONDS:
            (cluster / "sbatch").write_text(alive, encoding="utf-8")

    monkeypatch.setattr("time.sleep", sleep)
    assert submit_run(staged_run, said.append, retry_seconds=60) == 3
    assert "trying again" in said[0]
    assert (list_submitted(staged_run), count_submissions(home)) == (GROUPS, 3)


@pytest.fixture
def run_of_blocks(home, cluster):
    """Two array jobs in each of three blocks."""
    return stage_blocks(home, MATRIX_OF_BLOCKS)


def stage_blocks(home, matrix, **values):
    file = read_matrix(write_matrix(matrix, home / "matrix.toml"))
    site = make_site()
    plan = resolve(expand_matrix(file), site, max_array_size=1001)
    return stage_run(
        home, PlannedMatrix(file, LoadedSite("tiny", site, {}), plan), ["dlperf-slurm"], **values
    )


DEPENDENCIES = [
    "--dependency=afterany:1:2", "--dependency=afterany:1:2", "--dependency=afterany:3:4",
    "--dependency=afterany:3:4",
]  # fmt: skip


def list_dependencies(home):
    options = [line.split()[1] for line in (home / "calls").read_text().splitlines()]
    return [option for option in options if option.startswith("--dependency")]


def test_block_after_one_that_was_refused_waits_for_its_mending(home, bin_dir, run_of_blocks):
    """Whether repeats are spread over time would not be so, and nobody would see it."""
    good = (bin_dir / "sbatch").read_text(encoding="utf-8")
    refusal = 'case "$*" in *1n2g.sbatch) echo Unknown trouble >&2; exit 1;; esac'
    write_program(bin_dir, "sbatch", f"{refusal}\n{good}")
    with pytest.raises(SchedulerError) as caught:
        submit_run(run_of_blocks, print)
    assert list_submitted(run_of_blocks) == ["1n1g"]
    lines = str(caught.value).splitlines()
    why = "was not submitted: 1n2g, which must run first, was refused"
    later = ["1n1g-block2", "1n2g-block2", "1n1g-block3", "1n2g-block3"]
    assert lines[1:5] == [f"{group_id} {why}" for group_id in later]
    (bin_dir / "sbatch").write_text(good, encoding="utf-8")
    submit_run(run_of_blocks, print)
    assert list_submitted(run_of_blocks) == ["1n1g", "1n2g", *later]
    assert list_dependencies(home) == DEPENDENCIES


@pytest.fixture
def interleaved(home, run_of_blocks):
    """Two runs of three blocks, one array job each, that are measured in turns."""
    matrix, ids = MATRIX_OF_BLOCKS.replace('"1n1g", "1n2g"', '"1n1g"'), ("second", "first")
    second, first = (stage_blocks(home, matrix, run_id=one, interleaved=ids[::-1]) for one in ids)
    return first, second


# blocks 1, 2, 3 of the first run have the ids 1, 3, 5, those of the second run 2, 4, 6
IN_TURNS = ["1", "1:2", "2:3", "3:4", "4:5"]


def list_awaited(home):
    return [option.rpartition("afterany:")[2] for option in list_dependencies(home)]


@pytest.mark.parametrize("named", [0, 1])
def test_blocks_of_interleaved_runs_wait_for_each_other_in_turns(home, interleaved, named):
    said = []
    submitter = Submitter(interleaved[named], said.append, is_in_turns=True)
    submitter.submit()
    submitter.raise_if_unsubmitted()
    assert [sorted(ids.split(":")) for ids in list_awaited(home)] == [
        s.split(":") for s in IN_TURNS
    ]
    assert [[e.array_job_id for e in read_journal(run.path) if e.event == SUBMITTED] for run in
            interleaved] == [["1", "3", "5"], ["2", "4", "6"]]  # fmt: skip
    assert not [line for line in said if "waits" in line]


def test_interleaved_run_goes_no_further_than_the_other_unless_that_is_cancelled(interleaved):
    first, second = interleaved
    submitter = Submitter(first, print)
    submitter.submit()
    assert list_submitted(first) == ["1n1g"]
    assert [*submitter.waiting] == ["1n1g-block2", "1n1g-block3"]
    append_event(second.path, Event(CANCELLED, format_now()))
    submitter.submit()
    assert not submitter.waiting


def test_resume_of_an_interleaved_run_submits_the_other_if_it_is_the_users_own(interleaved):
    first, second = interleaved
    assert main(["resume", str(first.path)]) == 3
    assert (list_submitted(first), list_submitted(second)) == (["1n1g"], [])
    mark_own(second)
    assert main(["resume", str(first.path)]) == 0
    assert (len(list_submitted(first)), len(list_submitted(second))) == (3, 3)


KILLED_GROUPS = ("1n1g", "1n2g", "1n4g")

# Python imports this at its start, and so before the local array job's first line of code
KILL_PARENT = """\
import os, signal
arguments = open("/proc/self/cmdline").read().split("\\0")
if "dlperf_slurm.scheduler.local" in arguments:
    os.kill(os.getppid(), signal.SIGKILL)
"""
DIE_TOO = """\
    os._exit(1)
"""


@pytest.fixture
def run(home, own_machine_lock):
    return local_runs.stage_local(home, repeats=2, topologies=KILLED_GROUPS)


def assert_each_task_runs_once_after_resume(run):
    done = run_tool(["resume", str(run.path), "--wait"], run.path.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(find_states(run).values()) == {"COMPLETED"}
    starts = [fake_environment.count_starts(path) for path in local_runs.list_attempt_dirs(run)]
    assert starts == [1] * 6
    events = Counter((e.event, e.group_id) for e in read_journal(run.path))
    assert [events[SUBMITTED, group_id] for group_id in KILLED_GROUPS] == [1, 1, 1]


def has_event(run, kind):
    return any(event.event == kind for event in read_journal(run.path))


@pytest.mark.slow
@pytest.mark.parametrize("code", [KILL_PARENT + DIE_TOO, KILL_PARENT], ids=["no job", "a job"])
def test_submit_killed_while_the_array_job_starts(run, home, code):
    (home / "sitecustomize.py").write_text(code, encoding="utf-8")
    assert run_tool(["resume", str(run.path)], home, {"PYTHONPATH": str(home)}).returncode == -9
    assert not has_event(run, SUBMITTED)
    assert_each_task_runs_once_after_resume(run)


MOMENTS = {
    "it has said what it will do": lambda run: has_event(run, SUBMITTING),
    "the array job is there": lambda run: local.read_claim(run.path, "1n1g"),
    "between two groups": lambda run: has_event(run, SUBMITTED),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_submit_killed_when(run, moment):
    process = start_tool(["resume", str(run.path)], run.path.parent)
    await_that(lambda: MOMENTS[moment](run), "the moment to kill submit", poll_seconds=0.001)
    process.kill()
    process.communicate()
    assert_each_task_runs_once_after_resume(run)
