"""Pending reasons of array tasks that wait or can never run, on a real Slurm, and their advice."""

from support.slurm_runs import CHECKOUT, ask, find_array_job, stage_spin, submit, wait
from support.tool import (
    DEADLINE_SECONDS,
    await_line,
    await_that,
    find_details,
    find_states,
    run_tool,
    start_tool,
)

from dlperf_slurm.jobs.journal import REFUSED, SUBMITTED, read_journal

SCHEDULER_ERROR = 3


def list_events(run, name):
    return [event.group_id for event in read_journal(run.path) if event.event == name]


def test_wait_says_that_a_task_is_held_and_what_lets_it_go(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", settings=['directives=["--hold"]'])
    submit(run)
    follower = start_tool(["wait", str(run.path)], CHECKOUT)
    job = find_array_job(run)
    await_that(lambda: find_details(run)["1n1g.0"] == "JobHeldUser", "squeue says why")
    status = run_tool(["status", str(run.path)], CHECKOUT).stdout
    hint = f"the job is held; to release it: `scontrol release {job}`"
    told = f"pending: JobHeldUser (1 array task of job {job}): {hint}"
    assert told in " ".join(status.split())
    assert "`scontrol release" in await_line(follower, "pending: ")
    ask("scontrol", "release", job)
    follower.communicate(timeout=DEADLINE_SECONDS)
    assert follower.returncode == 0


def test_wait_says_that_a_partition_will_never_start_a_task(cluster, tmp_path):
    """Expect advice, as Slurm accepts the job and leaves it pending until the partition changes."""
    settings = ["partition=small", "time_limit_minutes.default=4", "directives=[]"]
    run = stage_spin(tmp_path / "results", settings=settings)
    submit(run)
    await_that(lambda: find_details(run)["1n1g.0"] == "PartitionTimeLimit", "squeue says why")
    status = run_tool(["status", str(run.path)], CHECKOUT).stdout
    assert "will never start: the job's time limit is above the partition's" in " ".join(
        status.split()
    )
    run_tool(["cancel", str(run.path)], CHECKOUT)


def test_impossible_group_is_refused_before_any_other_is_submitted(cluster, tmp_path):
    run = stage_spin(tmp_path / "results", ["1n1g", "1n2g"], settings=["directives=[]"])
    script = run.get_script_path("1n2g")
    sound = script.read_text(encoding="utf-8")
    script.write_text(sound.replace("#SBATCH --nodes=1", "#SBATCH --nodes=9"), encoding="utf-8")
    refused = submit(run)
    assert refused.returncode == SCHEDULER_ERROR
    assert "1n2g cannot run: sbatch failed: " in refused.stderr
    assert "Requested node configuration is not available" in refused.stderr
    assert f"dlperf-slurm resume {run.path}" in refused.stderr
    assert (list_events(run, SUBMITTED), list_events(run, REFUSED)) == ([], ["1n2g"])
    script.write_text(sound, encoding="utf-8")
    submit(run)
    assert wait(run).returncode == 0


def test_array_whose_launches_fail_alike_is_held_and_the_cause_named(cluster, tmp_path):
    """Hold the rest of an array, which a missing environment would fail within seconds."""
    missing = tmp_path / "environment.sh"
    settings = [f'environments.pytorch.setup=["source {missing}"]', "directives=[]"]
    run = stage_spin(tmp_path / "results", repeats=12, settings=[*settings, "array_throttle=1"])
    submit(run)
    held = run.path / "markers" / "1n1g.held"
    await_that(held.is_symlink, "the others are held")
    await_that(lambda: "JobHeldUser" in find_details(run).values(), "squeue says so")
    await_that(lambda: "COMPLETING" not in find_states(run).values(), "the last one has ended")
    assert list(find_states(run).values()).count("FAILED") in (3, 4)
    status = " ".join(run_tool(["status", str(run.path)], CHECKOUT).stdout.split())
    assert "held, because several array tasks failed to launch" in status
    assert f"scontrol release {find_array_job(run)}" in status
    run_tool(["cancel", str(run.path)], CHECKOUT)
