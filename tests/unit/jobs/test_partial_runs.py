"""Run directories that a kill left half-made: named and removed, those in the making left alone."""

import os
import subprocess
import sys
import time

import pytest
from builders import IMPORT_DIR
from support.tool import run_tool

from dlperf_slurm.jobs.partial_runs import LOCK_FILE, UNLOCKED_SECONDS, remove_leftovers
from dlperf_slurm.jobs.stage import make_run_id

NAME = ".20240503-101500-matrix-local-0a1b.partial"
MAKE_FOR_EVER = """\
import sys, time
from pathlib import Path
from dlperf_slurm.jobs.partial_runs import create_partial_run
with create_partial_run(Path(sys.argv[1])):
    print("made", flush=True)
    time.sleep(600)
"""


def test_folder_in_the_making_stays_until_its_maker_was_killed(tmp_path):
    partial = tmp_path / "results" / NAME
    command = [sys.executable, "-c", MAKE_FOR_EVER, str(partial)]
    env = {**os.environ, "PYTHONPATH": IMPORT_DIR}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "made\n"
        assert remove_leftovers(tmp_path / "results") == []
        assert partial.exists()
    finally:
        process.kill()
        process.communicate()
    assert remove_leftovers(tmp_path / "results") == [partial]
    assert not partial.exists()


@pytest.mark.parametrize(("age_seconds", "is_removed"), [(0, False), (2 * UNLOCKED_SECONDS, True)])
def test_folder_without_a_lock_is_left_over_when_it_is_old(tmp_path, age_seconds, is_removed):
    partial = tmp_path / f".{make_run_id('a matrix', 'site.x')}.partial"
    partial.mkdir()
    moment = time.time() - age_seconds
    os.utime(partial, (moment, moment))
    assert bool(remove_leftovers(tmp_path)) == is_removed
    assert partial.exists() != is_removed


@pytest.mark.parametrize("name", ["run", "x.partial", ".20240503-photos.partial", f"{NAME}x"])
def test_folder_that_is_not_called_as_a_run_is_somebody_elses(tmp_path, name):
    (tmp_path / name).mkdir()
    os.utime(tmp_path / name, (0, 0))
    assert remove_leftovers(tmp_path) == remove_leftovers(tmp_path / "missing") == []
    assert (tmp_path / name).exists()


def test_link_that_is_called_as_a_run_is_left_alone(tmp_path):
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / LOCK_FILE).touch()
    (tmp_path / NAME).symlink_to("papers")
    assert remove_leftovers(tmp_path) == []
    assert (tmp_path / "papers" / LOCK_FILE).exists()


@pytest.mark.integration
def test_next_submission_names_what_it_removes(home, tmp_path):
    (home / "matrix.toml").write_text(
        "[model]\nname = 'resnet50'\n[axes]\nframework = 'pytorch'\ntopology = '1n1g'\n"
        "batch_size_per_device = 8\n",
        encoding="utf-8",
    )
    partial = home / "results" / NAME
    partial.mkdir(parents=True)
    os.utime(partial, (0, 0))
    venv = home / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    options = ["--site", "local", "--set", f"environments.pytorch.venv={venv}"]
    done = run_tool(["render", "matrix.toml", *options], home)
    assert done.returncode == 0, done.stderr
    assert f"Removed results/{NAME}, " in done.stdout
    assert not partial.exists()
