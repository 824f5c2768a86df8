"""The lock of this machine, beside what others may have put in its way."""

import contextlib
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.scheduler.local import make_job_id
from dlperf_slurm.scheduler.machine_lock import (
    get_first_in_queue,
    join_queue,
    lock_machine,
    open_own_folder,
)
from dlperf_slurm.scheduler.queue import ProcessWatcher


@pytest.fixture(autouse=True)
def ends_soon():
    """End a test that waits for a lock, by SIGALRM."""
    signal.alarm(20)
    yield
    signal.alarm(0)


@pytest.fixture
def folder(home, monkeypatch):
    """Where the lock is, in a temporary folder of the test's own; it is not there yet."""
    (home / "tmp").mkdir()
    (home / "victim").write_text("whole")
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    return home / "tmp" / f"dlperf-slurm-{os.getuid()}"


def is_held():
    """Whether another one would have to wait for it now."""
    cancelled = threading.Event()
    patience = threading.Timer(0.3, cancelled.set)
    patience.start()
    with lock_machine(cancelled):
        patience.cancel()
        return cancelled.is_set()


def test_one_holds_the_machine_at_a_time(folder):
    with lock_machine():
        assert is_held()
    assert not is_held()
    assert list(folder.iterdir()) == []


def test_places_in_the_queue_are_first_come_first_served(folder):
    with open_own_folder() as descriptor, contextlib.ExitStack() as first:
        is_first = first.enter_context(join_queue(descriptor))
        with join_queue(descriptor) as is_second, join_queue(descriptor) as is_third:
            assert [is_first(), is_second(), is_third()] == [True, False, False]
            first.close()
            assert [is_second(), is_third()] == [True, False]


def test_who_waits_is_told_which_run_has_the_machine(folder):
    job_id = make_job_id(os.getpid())
    assert get_first_in_queue() == ""
    with lock_machine(run_id="first-run"):
        for run_id, reason in (
            ("second-run", "waits for your run first-run, which is using this machine"),
            ("first-run", ""),
        ):
            watcher = ProcessWatcher(run_id)
            watcher.followed = {f"{job_id}_0"}
            watcher.update()
            assert watcher.get_row(f"{job_id}_0").reason == reason
    assert get_first_in_queue() == ""


def test_folder_of_the_lock_is_of_this_user_alone(folder):
    folder.mkdir(mode=0o755)
    with lock_machine():
        assert folder.stat().st_mode & 0o777 == 0o700


PLANTS = {
    "a link": lambda path, victim: path.symlink_to(victim),
    "a link to nothing": lambda path, victim: path.symlink_to("nothing"),
    "a pipe": lambda path, victim: os.mkfifo(path),
    "a folder": lambda path, victim: path.mkdir(),
    "a file": lambda path, victim: path.write_text("planted"),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
@pytest.mark.parametrize("name", ["0", "\udcff\n"])
@pytest.mark.integration
def test_what_was_planted_in_the_folder_changes_nothing(folder, home, plant, name):
    folder.mkdir()
    plant(folder / name, home / "victim")
    with lock_machine():
        assert is_held()
    assert not is_held()
    assert (home / "victim").read_text() == "whole"


@pytest.mark.parametrize("plant", [p for name, p in PLANTS.items() if name != "a folder"])
def test_who_took_the_name_of_the_folder_gets_another_one_used(folder, home, plant):
    plant(folder, home / "victim")
    with lock_machine():
        assert is_held()
        assert len(list(home.glob("cache/dlperf-slurm/*/*"))) == 1
    assert (home / "victim").read_text() == "whole"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_folder_of_another_user_is_not_used(folder, home):
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with lock_machine():
        assert is_held()
    assert list(folder.iterdir()) == []


def test_without_any_folder_of_its_own_it_is_an_error(folder, home):
    folder.write_text("")
    Path("cache").write_text("")
    with pytest.raises(SchedulerError, match=r"^neither .* is a folder"), lock_machine():
        pass
