"""Runs whose disk is full: refused before, failed with the disk's name, and tried again after."""

import pytest
from support import fake_environment, local_runs
from support.local_runs import list_attempt_dirs, stage_local
from support.small_disk import MIB, find_obstacle, mount_disk
from support.tool import find_details, find_states, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_obstacle() != "", reason=find_obstacle())]

INPUT_ERROR = 2
CASES_FAILED = 5


@pytest.fixture
def disk(home, own_machine_lock):
    """Mount a disk at the results folder, and give the test its own machine lock."""
    with mount_disk(home / "results", 24) as folder:
        yield folder


def read_errors(run):
    """All that anybody said of the array tasks."""
    paths = [*run.path.glob("scripts/*.log"), *run.path.glob("cases/**/err")]
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def test_submission_is_refused_while_the_disk_has_no_room_for_it(home, disk):
    fake_environment.fill_disk(disk, 6 * MIB)
    local_runs.write_matrix_file(home)
    venv = f"environments.pytorch.venv={fake_environment.make_venv(home / '.first')}"
    done = run_tool(["submit", "matrix.toml", "--site", "local", "--set", venv], home)
    assert done.returncode == INPUT_ERROR, done.stdout + done.stderr
    assert f"{disk} has 6.0 of 24.0 MiB free" in done.stderr
    assert [path.name for path in disk.iterdir()] == ["filler"]
    # so is that of a staged run
    (disk / "filler").unlink()
    run = stage_local(home)
    fake_environment.fill_disk(disk, MIB // 2)
    done = run_tool(["resume", str(run.path)], home)
    assert done.returncode == INPUT_ERROR
    assert f"{disk} has 0.5 of 24.0 MiB free" in done.stderr
    (disk / "filler").unlink()
    assert run_tool(["resume", str(run.path), "--wait"], home).returncode == 0


@pytest.mark.parametrize("free_kib", [0, 700])
def test_disk_that_is_full_when_a_task_starts_is_named_in_a_line(home, disk, free_kib):
    run = stage_local(home, repeats=2)
    first, second = list_attempt_dirs(run)
    fake_environment.choose_behaviour(first, "nap")
    # there is room when it is submitted, and none a moment later
    fake_environment.choose_filler(first, disk, free_kib * 1024)
    done = run_tool(["resume", str(run.path), "--wait"], home)
    assert done.returncode in (CASES_FAILED, INPUT_ERROR), done.stderr
    assert fake_environment.count_starts(second) == 0
    assert f"the disk at {disk} has " in done.stdout + done.stderr
    assert len(read_errors(run)) < 1000
    if free_kib:
        detail = find_details(run)["1n1g.1"]
        assert find_states(run)["1n1g.1"] == "FAILED"
        assert f"the disk at {disk} " in detail
        assert "No space left on device" in detail
    (disk / "filler").unlink()
    run_tool(["wait", str(run.path)], home)
    assert run_tool(["retry", str(run.path), "--wait"], home).returncode == 0
