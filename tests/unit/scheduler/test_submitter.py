"""Groups that a limit keeps out, against a fake Slurm that takes so many array tasks at once."""

import dataclasses
from pathlib import Path

import pytest
from builders import journal_state, write_program
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import CasesFailedError, SchedulerError
from dlperf_slurm.jobs.journal import (
    CANCELLED,
    SUBMITTED,
    Event,
    append_event,
    read_journal,
)
from dlperf_slurm.jobs.run_ownership import mark_own
from dlperf_slurm.scheduler import retry
from dlperf_slurm.scheduler.cancel import cancel_run
from dlperf_slurm.scheduler.follow import follow_run
from dlperf_slurm.scheduler.retry import stage_retry_by_cause
from dlperf_slurm.scheduler.sbatch_errors import is_limit_that_passes, is_no_answer
from dlperf_slurm.scheduler.submitter import Submitter
from dlperf_slurm.scheduler.track import Tracker

GROUPS = ["1n1g", "1n2g", "2n2g"]
NAMED = "sbatch: error: QOSMaxSubmitJobPerUserLimit"
POLICY = (
    "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit "
    "limit, user's size and/or time limits)"
)
# the files `queue` and `ended` have lines of job id, array tasks and job name
SBATCH = """\
[ "$1" = --test-only ] && exit 0
script=${@: -1}
while read -r line; do
  case $line in
    "#SBATCH --array=0-"*) size=$((${line##*-} + 1)) ;;
    "#SBATCH --job-name="*) name=${line#*=} ;;
  esac
done < "$script"
echo "$name" >> HOME/asked
case $name in *REFUSED) echo "sbatch: error: Unknown trouble" >&2; exit 1 ;; esac
used=0
while read -r _ tasks _; do used=$((used + tasks)); done < HOME/queue
if ((used + size > LIMIT)); then
  printf '%s\\n' "WORDS" >&2
  exit 1
fi
id=1
while read -r _; do id=$((id + 1)); done < HOME/calls
echo "$name" >> HOME/calls
echo "$id $size $name" >> HOME/queue
echo $id
"""
SQUEUE = """\
echo "JOBID|STATE|NODELIST|REASON|NAME|UID|COMMAND"
while read -r id tasks name; do
  echo "${id}_[0-$((tasks - 1))]|PENDING||Priority|$name|$UID|"
done < HOME/queue
while read -r id tasks name; do
  echo "${id}_[0-$((tasks - 1))]|TIMEOUT||TimeLimit|$name|$UID|"
done < HOME/ended
""".replace("|", "\x1f")


def write_bash(folder, name, script):
    write_program(folder, name, script).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")


class FakeSlurm:
    """Takes `limit` array tasks at once; what ends is made to."""

    def __init__(self, home, bin_dir, limit=2, refused="nothing", words=f"{NAMED}\n{POLICY}"):
        self.home = home
        for name in ("queue", "ended", "calls", "asked"):
            (home / name).touch()
        script = SBATCH.replace("HOME", str(home)).replace("REFUSED", refused)
        self.sbatch = script.replace("WORDS", words).replace("LIMIT", str(limit))
        write_bash(bin_dir, "sbatch", self.sbatch)
        write_bash(bin_dir, "squeue", SQUEUE.replace("HOME", str(home)))
        for name in ("srun", "sacct", "scancel"):
            write_program(bin_dir, name, "true")

    def end_all(self):
        with (self.home / "ended").open("a") as ended:
            ended.write((self.home / "queue").read_text())
        (self.home / "queue").write_text("")

    def list_taken(self):
        """List the groups that were accepted, in order."""
        return self._list_groups("calls")

    def list_asked(self):
        return self._list_groups("asked")

    def _list_groups(self, name):
        return [line.rpartition(".")[2] for line in (self.home / name).read_text().split()]


@pytest.fixture
def slurm(home, bin_dir):
    return FakeSlurm(home, bin_dir)


def list_submitted(run):
    return [event.group_id for event in read_journal(run.path) if event.event == SUBMITTED]


def test_groups_go_as_room_appears_and_each_once(slurm, staged_run):
    submitter = Submitter(staged_run, print, retry_seconds=60)
    submitter.submit()
    submitter.submit_waiting()
    assert (list(submitter.waiting), slurm.list_taken()) == (["1n2g", "2n2g"], ["1n1g"])
    with pytest.raises(SchedulerError) as caught:
        submitter.raise_if_unsubmitted()
    says = ("1n2g", "2n2g", NAMED, "1 of 3", f"dlperf-slurm resume {staged_run.path}")
    assert_problem(str(caught.value), says=says)
    slurm.end_all()
    submitter.submit_waiting()
    assert list(submitter.waiting) == ["2n2g"]
    slurm.end_all()
    submitter.submit_waiting()
    assert (submitter.waiting, slurm.list_taken()) == ({}, GROUPS)
    submitter.raise_if_unsubmitted()


@pytest.mark.parametrize("limit", [1, 2])
def test_limit_is_waited_for_while_jobs_of_the_user_can_make_room(home, bin_dir, staged_run, limit):
    slurm = FakeSlurm(home, bin_dir, limit)
    said = []
    submitter = Submitter(staged_run, said.append)
    submitter.submit()
    if limit == 1:
        with pytest.raises(SchedulerError, match=r"limit .*max_array_size"):
            submitter.submit_waiting()
        return
    # one as large as a group without room is not tried
    assert slurm.list_asked() == ["1n1g", "1n2g"]
    submitter.submit_waiting()
    assert list(submitter.waiting) == ["1n2g", "2n2g"]
    # the same words are told once
    assert len(said) == 3
    assert all(NAMED in line for line in said[1:])


def test_controller_that_is_away_for_a_moment_stops_no_feeding(slurm, bin_dir, staged_run):
    submitter = Submitter(staged_run, print, retry_seconds=60)
    submitter.submit()
    write_program(bin_dir, "sbatch", "echo 'Unable to contact slurm controller' >&2; exit 1")
    submitter.submit_waiting()
    assert list(submitter.waiting) == ["1n2g", "2n2g"]
    write_bash(bin_dir, "sbatch", slurm.sbatch)
    slurm.end_all()
    submitter.submit_waiting()
    assert list_submitted(staged_run) == ["1n1g", "1n2g"]


@pytest.mark.integration
def test_submission_that_waits_follows_the_others_and_names_the_refused_last(
    home, bin_dir, staged_run, capsys
):
    slurm = FakeSlurm(home, bin_dir, limit=9, refused="1n2g")
    slurm.end_all()
    ended = f'{slurm.sbatch}\necho "$id $size $name" >> {home}/ended; : > {home}/queue'
    write_bash(bin_dir, "sbatch", ended)
    assert main(["resume", str(staged_run.path), "--wait"]) == SchedulerError.exit_code
    told = capsys.readouterr()
    assert "4/6 done: 2 STAGED, 4 TIMEOUT" in told.out
    assert "Report: " in told.out
    assert "error: 1n2g was not submitted" in told.err


def limit_site(run, **values):
    return run._replace(manifest=dataclasses.replace(run.manifest, **values))


def test_no_more_is_submitted_than_the_site_says_and_none_is_refused(home, bin_dir, staged_run):
    slurm = FakeSlurm(home, bin_dir, limit=99)
    said = []
    submitter = Submitter(limit_site(staged_run, max_submitted=2), said.append)
    submitter.submit()
    words = "more than max_submitted = 2 jobs (site file) would be in the queue"
    assert submitter.waiting == {"1n2g": words, "2n2g": words}
    assert slurm.list_asked() == ["1n1g"]
    assert_problem(said[1], says=("1n2g", words))
    slurm.end_all()
    submitter.submit_waiting()
    assert list(submitter.waiting) == ["2n2g"]
    slurm.end_all()
    submitter.submit_waiting()
    assert (submitter.waiting, slurm.list_taken()) == ({}, GROUPS)


def test_group_larger_than_the_limit_is_named_once_nothing_is_queued(home, bin_dir, staged_run):
    FakeSlurm(home, bin_dir, limit=99)
    submitter = Submitter(limit_site(staged_run, max_submitted=1), print)
    submitter.submit()
    with pytest.raises(SchedulerError, match=r"^1n1g .*max_submitted = 1"):
        submitter.submit_waiting()


def test_variables_of_the_shell_that_sbatch_does_not_see_are_named_once(
    home, bin_dir, staged_run, monkeypatch
):
    slurm = FakeSlurm(home, bin_dir, limit=99)
    seen = f'echo "${{SBATCH_ACCOUNT-}} ${{SBATCH_QOS-}}" >> {home}/seen\n{slurm.sbatch}'
    write_bash(bin_dir, "sbatch", seen)
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    monkeypatch.setenv("SBATCH_QOS", "high")
    said = []
    submitter = Submitter(limit_site(staged_run, inherit=("SBATCH_ACCOUNT",)), said.append)
    submitter.submit()
    submitter.submit()
    assert sum("`inherit`" in line and "SBATCH_QOS" in line for line in said) == 1
    assert set((home / "seen").read_text().splitlines()) == {"mine "}


@pytest.mark.parametrize(
    ("variable", "value", "clusters", "is_heeded"),
    [
        ("SLURM_CLUSTERS", "far", "far", True),
        ("SLURM_CLUSTERS", "far", "near", False),
        ("SLURM_CLUSTERS", "far,near", "", False),
        ("SLURM_CLUSTERS", "all", "", False),
        ("SBATCH_CLUSTERS", "far", "", False),
    ],
)
def test_cluster_of_the_shell_is_never_dropped_in_silence(
    home, bin_dir, staged_run, monkeypatch, variable, value, clusters, is_heeded
):
    FakeSlurm(home, bin_dir, limit=99)
    monkeypatch.setenv(variable, value)
    said = []
    Submitter(limit_site(staged_run, clusters=clusters), said.append).submit()
    (line,) = [line for line in said if variable in line]
    assert line.startswith("ignored") is not is_heeded
    assert ("--set clusters=" in line) is not is_heeded


@pytest.mark.integration
def test_cluster_of_the_site_is_named_to_each_client(home, bin_dir, staged_run):
    FakeSlurm(home, bin_dir, limit=99)
    squeue = (bin_dir / "squeue").read_text(encoding="utf-8").partition("\n")[2]
    asked = f'echo "$0 $*" >> {home}/options\necho "CLUSTER: far"\n'
    write_bash(bin_dir, "squeue", f"{asked}{squeue}")
    for name in ("sacct", "scancel"):
        write_program(bin_dir, name, f'echo "$0 $*" >> {home}/options')
    run = limit_site(staged_run, clusters="far", max_submitted=99)
    Submitter(run, print).submit()
    tracker = Tracker(run)
    states = tracker.refresh(ask_scheduler=True)
    assert {state.state for state in states} == {"PENDING"}
    # what squeue has forgotten, sacct is asked about; and scancel ends what it still shows
    with pytest.raises(SchedulerError, match="after scancel"):
        cancel_run(run, print)
    (home / "queue").write_text("", encoding="utf-8")
    tracker.refresh(ask_scheduler=True)
    lines = (home / "options").read_text(encoding="utf-8").splitlines()
    assert {Path(line.split()[0]).name for line in lines} == {"squeue", "sacct", "scancel"}
    assert all("--clusters=far" in line for line in lines)


def test_who_follows_a_run_feeds_it(slurm, staged_run, monkeypatch):
    submitter = Submitter(staged_run, print, retry_seconds=60)
    submitter.submit()
    end_all_at_each_sleep(slurm, monkeypatch)
    *_, states = follow_run(Tracker(staged_run), submitter)
    assert [state.state for state in states] == ["TIMEOUT"] * 6
    assert slurm.list_taken() == GROUPS


def end_all_at_each_sleep(slurm, monkeypatch):
    # each sleep is a second of the follower's
    clock = iter(range(10_000))
    monkeypatch.setattr("dlperf_slurm.scheduler.follow.time.monotonic", lambda: next(clock) * 10.0)
    monkeypatch.setattr("dlperf_slurm.scheduler.follow.TICK_SECONDS", 0.0)
    monkeypatch.setattr("time.sleep", lambda seconds: slurm.end_all())


def test_what_another_process_submits_is_followed_to_its_end(
    home, bin_dir, staged_run, monkeypatch
):
    slurm = FakeSlurm(home, bin_dir, limit=99)
    tracker = Tracker(staged_run)
    Submitter(staged_run, print).submit()
    end_all_at_each_sleep(slurm, monkeypatch)
    first, *_, last = follow_run(tracker)
    assert {state.state for state in first} == {"STAGED"}
    assert {state.state for state in last} == {"TIMEOUT"}


@pytest.mark.parametrize(
    ("is_cancelled", "is_submitted_meanwhile", "groups"),
    [(False, False, ["1n1g-try2"]), (False, True, ["1n1g-try2"]), (True, False, [])],
)
def test_retry_that_another_process_has_only_staged_is_submitted_once(
    slurm, staged_run, monkeypatch, capsys, is_cancelled, is_submitted_meanwhile, groups
):
    mark_own(staged_run)
    for task in staged_run.read_all_tasks():
        append_event(staged_run.path, Event(SUBMITTED, format_now(), task.group_id, "70"))
        detail = "launch failed" if task.group_id == "1n1g" else ""
        journal_state(staged_run, task, "FAILED", detail, "70")
    assert stage_retry_by_cause(staged_run, print) == 2
    if is_cancelled:
        append_event(staged_run.path, Event(CANCELLED, format_now()))
    if is_submitted_meanwhile:
        # after it was followed as STAGED
        others = Submitter(staged_run, print)
        monkeypatch.setattr(retry, "stage_retry_by_cause", lambda run, report: others.submit() or 0)
    end_all_at_each_sleep(slurm, monkeypatch)
    assert main(["wait", str(staged_run.path)]) == CasesFailedError.exit_code
    assert slurm.list_taken() == groups
    assert ("2 TIMEOUT" in capsys.readouterr().out) is not is_cancelled


def test_cancelled_run_is_fed_no_more(slurm, staged_run):
    said = []
    submitter = Submitter(staged_run, said.append, retry_seconds=60)
    submitter.submit()
    slurm.end_all()
    assert cancel_run(staged_run, print) == 0
    submitter.submit_waiting()
    assert submitter.waiting == {}
    assert "cancelled: 2 array jobs" in said[-1]
    assert slurm.list_taken() == ["1n1g"]


@pytest.mark.parametrize(
    ("words", "passes"),
    [
        (f"sbatch failed: {NAMED}\n{POLICY}", True),
        (f"sbatch failed: sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}", True),
        (f"sbatch failed: {POLICY}", True),
        (f"sbatch failed: sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", False),
        (
            "sbatch did not respond within 60 s: sbatch: error: Slurm temporarily unable to accept "
            "job, sleeping and retrying",
            True,
        ),
        ("sbatch failed: Unable to contact slurm controller (connect failure)", False),
    ],
)
def test_limit_passes_if_it_is_one_on_the_number_of_jobs(words, passes):
    assert is_limit_that_passes(words) is passes
    assert not (passes and is_no_answer(words))
