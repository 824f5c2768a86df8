"""Array tasks that share jobs of a real Slurm: each has its own state, whatever ends the others."""

import time

import pytest
from support.slurm_runs import (
    CHECKOUT,
    ask,
    assert_array_tasks_in_accounting,
    find_array_job,
    list_valid_records,
    stage_quick,
    submit,
)
from support.tool import await_that, find_details, find_states, run_tool, start_tool

pytestmark = pytest.mark.usefixtures("empty_queue")

CASES_FAILED = 5
TASKS = 1000
JOBS = 32
THOUSAND_SECONDS = 2400.0
# runs first in each array task of a quick run, while the file `faults` exists
FAULT = """\
if [ "$3" = run ] && [ -e {faults} ]; then
  case $4 in
    */r{dies}/*) echo this one dies >&2; exit 9 ;;
    */r{hangs}/*) touch {faults}.hangs; trap '' TERM; sleep 1000 & sleep 1000; sleep 1000 ;;
  esac
fi
"""


def run_before_the_rank(folder, script):
    python = folder / "environment" / "bin" / "python"
    first, rest = python.read_text(encoding="utf-8").split("\n", 1)
    python.write_text(f"{first}\n{script}{rest}", encoding="utf-8")


def shorten_waits(run, limit_seconds):
    """Set the time limit of an array task in seconds, and shorten its termination grace time."""
    (script,) = run.path.glob("scripts/*.sbatch")
    text = script.read_text(encoding="utf-8")
    limits = "limit_seconds=60 warning_seconds=0 end_seconds=20\n"
    assert text.count(limits) == 1
    shorter = f"limit_seconds={limit_seconds} warning_seconds=0 end_seconds=3\n"
    script.write_text(text.replace(limits, shorter), encoding="utf-8")


def test_task_that_dies_or_takes_too_long_ends_no_other_one_of_its_job(cluster, tmp_path):
    run = stage_quick(tmp_path, ["tasks_per_job=6", "time_limit_minutes.default=1"], repeats=6)
    shorten_waits(run, limit_seconds=16)
    repeats = [task.repeat for task in run.read_all_tasks()]
    faults = tmp_path / "faults"
    faults.touch()
    fault = FAULT.format(faults=faults, dies=repeats[1], hangs=repeats[3])
    run_before_the_rank(tmp_path, fault)
    done = submit(run, "--wait")
    assert done.returncode == CASES_FAILED, done.stdout + done.stderr
    expected = ["COMPLETED", "FAILED", "COMPLETED", "TIMEOUT", "COMPLETED", "COMPLETED"]
    assert list(find_states(run).values()) == expected
    assert "exit code 9" in find_details(run)["1n1g.1"]
    assert_array_tasks_in_accounting(run, 1)
    faults.unlink()
    retried = run_tool(["retry", str(run.path), "--wait"], CHECKOUT)
    assert retried.returncode == 0, retried.stdout + retried.stderr
    assert "retrying 2 of " in retried.stdout
    assert "6 of 6 repeats measured" in " ".join(retried.stdout.split())


def test_rest_of_a_job_that_ends_early_is_submitted_again(cluster, tmp_path):
    """Send the signal that a job gets a minute before its own time limit."""
    run = stage_quick(tmp_path, ["tasks_per_job=4"], repeats=4)
    second = run.read_all_tasks()[1]
    faults = tmp_path / "faults"
    faults.touch()
    run_before_the_rank(tmp_path, FAULT.format(faults=faults, dies=0, hangs=second.repeat))
    assert submit(run).returncode == 0
    await_that((tmp_path / "faults.hangs").exists, "the second one hangs")
    states = {"1n1g.0": "COMPLETED", "1n1g.1": "RUNNING", "1n1g.2": "PENDING", "1n1g.3": "PENDING"}
    await_that(lambda: find_states(run) == states, "the queue shows it")
    faults.unlink()
    ask("scancel", "--batch", "--signal=USR1", f"{find_array_job(run)}_0")
    done = run_tool(["wait", str(run.path)], CHECKOUT)
    words = "retrying 2 array tasks; the first failed: the shared job ended before this array task"
    assert words in done.stdout, done.stdout
    assert done.returncode == CASES_FAILED, done.stderr
    states = find_states(run)
    assert [states[f"1n1g.{number}"] for number in range(4)] == ["COMPLETED", *["FAILED"] * 3]
    assert [states[f"1n1g-try2.{number}"] for number in range(2)] == ["COMPLETED"] * 2


def test_plain_jobs_do_what_arrays_do(cluster, tmp_path):
    run = stage_quick(tmp_path, ["arrays=false", "tasks_per_job=2"], repeats=3)
    done = submit(run, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert find_states(run) == dict.fromkeys(["1n1g-1.0", "1n1g-1.1", "1n1g-2.0"], "COMPLETED")
    assert "2 sbatch" in done.stdout
    job = find_array_job(run, "1n1g-1")
    assert (
        ask(
            "sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID", f"--jobs={job}"
        )
        == f"{job}\n"
    )


@pytest.mark.faults
def test_thousand_tasks_in_32_jobs_are_each_measured_once_though_a_node_dies(cluster, tmp_path):
    settings = [f"tasks_per_job={JOBS}", "array_throttle=6", "time_limit_minutes.default=1"]
    run = stage_quick(tmp_path, settings, TASKS // 4, seconds=0.05, batch_size="[1, 2, 3, 4]")
    submission = start_tool(["resume", str(run.path), "--wait"], CHECKOUT)
    try:
        await_that(
            lambda: submission.poll() is not None or len(list_records(run)) > TASKS // 10,
            "a tenth is measured",
            THOUSAND_SECONDS,
            1.0,
        )
        cluster.call("crash", "n2")
        time.sleep(30)
        cluster.call("start", "n2")
        stdout, stderr = submission.communicate(timeout=THOUSAND_SECONDS)
    finally:
        submission.kill()
        cluster.call("start", "n2")
    assert submission.returncode == 0, stdout + stderr
    command = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID"]
    jobs = ask(*command, "--starttime=now-2hours", f"--name={run.run_id}.1n1g").split()
    assert len(jobs) == JOBS
    assert f"{TASKS} of {TASKS} repeats measured" in " ".join(stdout.split())
    sound = list_valid_records(run)
    assert len(sound) == len(set(sound)) == TASKS


def list_records(run):
    return list(run.path.glob("cases/*/r*/a*/s*/record.json"))
