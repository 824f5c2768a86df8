"""Faults that a cluster causes behind the tool's back: no record is lost, no task runs twice."""

import subprocess

import pytest
from support.slurm_runs import (
    CHECKOUT,
    NOTHING_TO_RETRY,
    ask,
    await_ranks,
    count_starts_of_rank_0,
    find_array_job,
    list_queue,
    stage_spin,
    start_spin,
    submit,
    wait,
    write_wrapper,
)
from support.small_disk import bind_read_only
from support.tool import (
    DEADLINE_SECONDS,
    await_that,
    find_details,
    find_states,
    run_tool,
    start_tool,
)

from dlperf_slurm.jobs.journal import JOURNAL_FILE
from dlperf_slurm.jobs.run_directory import HARNESS_FILE

pytestmark = pytest.mark.usefixtures("empty_queue")

CASES_FAILED = 5
ONE_HOUR_BEFORE = "date --utc --date='1 hour ago'"


def submit_twice(run, tmp_path, **env):
    """Submit an array twice, and report the id of the second, which starts later."""
    twice = '"$real" "$@" > /dev/null; sleep 2; exec "$real" "$@"'
    done = submit(run, PATH=write_wrapper(tmp_path / "bin", "sbatch", twice), **env)
    assert done.returncode == 0, done.stderr


def requeue(run):
    """Requeue an array task, without Slurm's delay of two minutes."""
    job = f"{find_array_job(run)}_0"
    ask("scontrol", "requeue", job)
    await_that(lambda: ask("squeue", "-h", "-o%T", f"-j{job}") == "PENDING\n", "it is requeued")
    ask("scontrol", "update", f"jobid={job}", "starttime=now+3")
    return job


def retry(run):
    done = run_tool(["retry", str(run.path)], CHECKOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def is_nothing_to_retry(run):
    # if the journal was lost, submissions are journaled again
    said = retry(run)
    return NOTHING_TO_RETRY in said or "retrying 0 of " in said


def report(run):
    return run_tool(["report", "--plots", "none", str(run.path)], CHECKOUT)


def test_requeue_of_a_task_that_ended_well_leaves_its_record(cluster, tmp_path, gate):
    run = stage_spin(tmp_path / "results")
    gate.touch()
    assert submit(run, "--wait", SPIN_WAIT_FOR=str(gate)).returncode == 0
    # a second start would wait at the gate
    gate.unlink()
    job = requeue(run)
    await_that(
        lambda: count_starts_of_rank_0(run) != [1] or job not in list_queue(run), "it came back"
    )
    done = run_tool(["cancel", str(run.path)], CHECKOUT)
    assert done.returncode == 0, done.stderr
    assert find_states(run) == {"1n1g.0": "COMPLETED"}
    assert count_starts_of_rank_0(run) == [1]
    assert report(run).returncode == 0
    assert is_nothing_to_retry(run)


def test_cancel_ends_what_is_queued_though_all_is_measured(cluster, tmp_path):
    run = stage_spin(tmp_path / "results")
    assert submit(run, "--wait").returncode == 0
    job = find_array_job(run)
    ask("scontrol", "requeue", f"{job}_0")
    await_that(lambda: list_queue(run) == {f"{job}_0": "PENDING"}, "it is requeued")
    done = run_tool(["cancel", str(run.path)], CHECKOUT)
    assert "1 array task" in done.stdout
    assert list_queue(run) == {}
    assert find_states(run) == {"1n1g.0": "COMPLETED"}


def test_preempted_task_is_not_failed_by_the_clock_of_another_host(cluster, tmp_path, gate):
    settings = [
        "tracking.poll_seconds=5",
        "tracking.slowest_poll_seconds=5",
        "tracking.lost_after_seconds=60",
        "qos=low",
        "directives=['--nodelist=n3', '--exclusive']",
    ]
    run = stage_spin(tmp_path / "results", settings=settings)
    harness = run.path / HARNESS_FILE
    text = harness.read_text(encoding="utf-8")
    assert "date --utc" in text
    harness.write_text(text.replace("date --utc", ONE_HOUR_BEFORE), encoding="utf-8")
    submit(run, SPIN_WAIT_FOR=str(gate))
    await_ranks(run, 1)
    asked = tmp_path / "asked"
    path = write_wrapper(tmp_path / "bin", "squeue", f'"$real" "$@"; echo $? >> {asked}')
    follower = start_tool(["wait", str(run.path)], CHECKOUT, {"PATH": path})
    await_that(asked.exists, "the queue has said that it runs")
    ask("sbatch", "--qos=high", "--nodelist=n3", "--exclusive", "--wrap=sleep 5", "-o/dev/null")
    job = f"{find_array_job(run)}_0"
    await_that(lambda: list_queue(run).get(job) == "PENDING", "it is preempted")
    gate.touch()
    # shorten the requeue delay of two minutes; not to 0, or Slurm kills the job
    ask("scontrol", "update", f"jobid={job}", "starttime=now+6")
    output, _ = follower.communicate(timeout=DEADLINE_SECONDS)
    assert (follower.returncode, "FAILED" in output) == (0, False), output
    assert find_states(run) == {"1n1g.0": "COMPLETED"}
    assert count_starts_of_rank_0(run) == [2]


def test_job_that_is_preempted_for_good_is_tried_again(cluster, tmp_path, gate):
    """Expect FAILED from Slurm, as the job ends within the grace time of its QOS."""
    settings = ["qos=cancelme", "time_limit_minutes.default=10"]
    settings += ["directives=['--nodelist=n3', '--exclusive']"]
    run = start_spin(gate, tmp_path / "results", settings=settings)
    ask("sbatch", "--qos=high", "--nodelist=n3", "--exclusive", "--wrap=true", "-o/dev/null")
    await_that(lambda: "RUNNING" not in find_states(run).values(), "it is preempted", 60)
    gate.touch()
    done = run_tool(["wait", str(run.path)], CHECKOUT)
    assert done.returncode == 0, done.stdout + done.stderr + str(find_details(run))
    assert find_states(run) == {"1n1g.0": "PREEMPTED", "1n1g-try2.0": "COMPLETED"}


def test_array_submitted_twice_is_followed_by_the_job_that_has_the_claim(cluster, tmp_path, gate):
    settings = ["tracking.lost_after_seconds=2", "directives=[]"]
    run = stage_spin(tmp_path / "results", settings=settings)
    submit_twice(run, tmp_path, SPIN_WAIT_FOR=str(gate))
    await_ranks(run, 1)
    follower = start_tool(["wait", str(run.path)], CHECKOUT)
    await_that(lambda: len(list_queue(run)) == 1, "the second one has found the claim and ended")
    # longer than the grace period of a COMPLETED array task without a marker
    with pytest.raises(subprocess.TimeoutExpired):
        follower.wait(timeout=6)
    gate.touch()
    output, _ = follower.communicate(timeout=DEADLINE_SECONDS)
    assert follower.returncode == 0, output
    assert "LOST" not in output
    assert find_states(run) == {"1n1g.0": "COMPLETED"}
    assert count_starts_of_rank_0(run) == [1]


def test_cancel_reaches_both_of_an_array_submitted_twice(cluster, tmp_path, gate):
    run = stage_spin(tmp_path / "results", repeats=2)
    submit_twice(run, tmp_path, SPIN_WAIT_FOR=str(gate))
    await_that(lambda: sum(count_starts_of_rank_0(run)) == 1, "one runs")
    assert len(list_queue(run)) == 4
    done = run_tool(["cancel", str(run.path)], CHECKOUT)
    assert done.returncode == 0, done.stderr
    await_that(lambda: list_queue(run) == {}, "nothing is left in the queue")
    assert wait(run).returncode == CASES_FAILED
    assert set(find_states(run).values()) == {"CANCELLED"}


def test_variables_of_clients_neither_lose_nor_spare_a_running_task(cluster, tmp_path, gate):
    run = start_spin(gate, tmp_path / "results", settings=["tracking.lost_after_seconds=1"])
    for leaking in (
        {"SQUEUE_PARTITION": "small"},
        {"SQUEUE_STATES": "COMPLETED", "SQUEUE_FORMAT": "%i", "SQUEUE_USERS": "nobody"},
        {"SACCT_FORMAT": "JobID", "SINFO_PARTITION": "small"},
    ):
        for _ in range(2):
            done = run_tool(["status", str(run.path)], CHECKOUT, leaking)
            assert done.returncode == 0, (leaking, done.stderr)
            assert "1 RUNNING" in done.stdout, leaking
    path = write_wrapper(tmp_path / "bin", "scancel", "exit 0")
    done = run_tool(["cancel", str(run.path)], CHECKOUT, {"PATH": path})
    assert done.returncode == 3
    assert f"{find_array_job(run)}_0 RUNNING" in done.stderr
    leaking = {"SCANCEL_STATE": "PENDING", "SCANCEL_PARTITION": "small", "SCANCEL_INTERACTIVE": "1"}
    done = run_tool(["cancel", str(run.path)], CHECKOUT, leaking)
    assert done.returncode == 0, done.stderr
    await_that(lambda: list_queue(run) == {}, "it has ended")


def test_cancel_works_on_a_disk_that_cannot_be_written(cluster, tmp_path, gate):
    run = start_spin(gate, tmp_path / "results", repeats=2)
    with bind_read_only(run.path):
        done = run_tool(["cancel", str(run.path)], CHECKOUT)
        assert (done.returncode, "2 array tasks" in done.stdout) == (0, True), done.stderr
        assert "Read-only file system" in done.stderr
    await_that(lambda: list_queue(run) == {}, "nothing is left in the queue")
    assert wait(run).returncode == CASES_FAILED
    assert set(find_states(run).values()) == {"CANCELLED"}


# what is left of a journal, or None for no file
DAMAGES = {
    "bytes": lambda content: content.replace(b'"event": "s', b'"event": "\xff\xfe'),
    "torn": lambda content: content[:-30],
    "empty": lambda content: b"",
    "missing": None,
}


def damage_journal(run, damage):
    path = run.path / JOURNAL_FILE
    change = DAMAGES[damage]
    path.write_bytes(change(path.read_bytes())) if change else path.unlink()


def test_run_goes_on_after_its_journal_was_damaged(cluster, tmp_path, gate):
    run = start_spin(gate, tmp_path / "results", repeats=2)
    for damage in DAMAGES:
        damage_journal(run, damage)
        assert sorted(find_states(run).values()) == ["PENDING", "RUNNING"], damage
        assert submit(run).returncode == 0
        assert len(list_queue(run)) == 2
    gate.touch()
    done = wait(run)
    assert (done.returncode, count_starts_of_rank_0(run)) == (0, [1, 1]), done.stdout + done.stderr
    for damage in DAMAGES:
        damage_journal(run, damage)
        assert report(run).returncode == 0, damage
        assert is_nothing_to_retry(run), damage


def test_files_cut_short_after_the_end_are_tried_again(cluster, tmp_path):
    names = ("record.json", "details.npz")
    run = stage_spin(tmp_path / "results", repeats=len(names))
    assert submit(run, "--wait").returncode == 0
    cut = dict(zip(run.read_all_tasks(), names))
    for task, name in cut.items():
        (path,) = (run.path / task.attempt_dir).glob(f"**/{name}")
        path.write_bytes(path.read_bytes()[:100])
    assert report(run).returncode == CASES_FAILED
    assert find_states(run) == {task.marker: "FAILED" for task in cut}
    details = find_details(run)
    assert [name for task, name in cut.items() if name not in details[task.marker]] == []
    assert wait(run).returncode == CASES_FAILED
    assert "retrying 2 of " in retry(run)
    assert wait(run).returncode == 0
