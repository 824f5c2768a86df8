"""A thousand array tasks while a node, the controller and the disk fail: make test-faults."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.quick_tasks import make_quick_venv
from support.slurm_runs import (
    CHECKOUT,
    NOTHING_TO_RETRY,
    SITE,
    kill_controller,
    list_valid_records,
    write_matrix,
)
from support.small_disk import keep_full
from support.tool import await_that, run_tool, set_values, start_tool

from dlperf_slurm.jobs.run_directory import open_run

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("empty_queue")]

TASKS = 1000
SETTINGS = (
    "directives=[]",
    "array_throttle=12",
    "tracking.poll_seconds=2",
    "tracking.slowest_poll_seconds=4",
)
FULL_SECONDS = 20.0
TEST_SECONDS = 1500.0


def test_thousand_tasks_are_each_measured_once_whatever_fails_meanwhile(cluster, tmp_path):
    """Run `submit --wait` while a node crashes, then the controller, then the disk is full."""
    results = cluster.disk / tmp_path.name
    venv = make_quick_venv(tmp_path / "environment", seconds=0.2)
    matrix = write_matrix(tmp_path, repeats=TASKS // 4, batch_size="[1, 2, 3, 4]")
    settings = [*SETTINGS, f"environments.pytorch.venv={json.dumps(str(venv))}"]
    options = set_values(*settings)
    command = ["submit", str(matrix), "--wait", "--site", str(SITE), "--results", str(results)]
    with ThreadPoolExecutor(1) as pool:
        submission = start_tool([*command, *options], CHECKOUT)
        output = pool.submit(submission.communicate)
        try:
            run = await_run(results)
            await_records(run, TASKS // 5)
            cluster.call("crash", "n2")
            await_records(run, 2 * TASKS // 5)
            kill_controller(run)
            time.sleep(5)
            cluster.call("up")
            await_records(run, 3 * TASKS // 5)
            with keep_full(cluster.disk, cluster.disk_mib):
                time.sleep(FULL_SECONDS)
            stdout, stderr = output.result(TEST_SECONDS)
        finally:
            submission.kill()
            cluster.call("start", "n2")
    assert submission.returncode == 0, stdout + stderr
    assert "cannot be written from n" in stdout
    sound = list_valid_records(run)
    assert len(sound) == len(set(sound)) == TASKS
    assert f"{TASKS} of {TASKS} repeats measured" in " ".join(stdout.split())
    assert NOTHING_TO_RETRY in run_tool(["retry", str(run.path)], CHECKOUT).stdout


def await_run(results):
    await_that(lambda: list(results.glob("*/journal.jsonl")), "it is staged", 120, 0.5)
    (journal,) = results.glob("*/journal.jsonl")
    return open_run(journal.parent)


def await_records(run, count):
    await_that(lambda: len(list_records(run)) >= count, f"{count} are measured", TEST_SECONDS, 1.0)


def list_records(run):
    return list(run.path.glob("cases/*/r*/a*/s*/record.json"))
