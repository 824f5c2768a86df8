"""A disk of a few MiB, for tests that fill it."""

import os
import subprocess
import threading
from contextlib import contextmanager

import pytest

MIB = 2**20


def find_obstacle():
    """Return why no disk can be mounted here, or ''."""
    return "" if os.geteuid() == 0 else "mounting a tmpfs takes root: run this test as root"


@contextmanager
def mount_disk(folder, mib):
    """Mount a tmpfs of this size at the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    mount(folder, f"size={mib}m", "-t", "tmpfs", "tmpfs")
    try:
        yield folder
    finally:
        # processes of a failed test may still use it
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def bind_read_only(folder):
    """Make a folder read-only for this host, but not for the nodes; skip the test without that."""
    mount(folder, "bind,ro", str(folder))
    try:
        if os.access(str(folder), os.W_OK):
            pytest.skip("a folder cannot be bound read-only here")
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def keep_full(disk, mib):
    """Keep a mounted disk of this size full: a thread writes whenever others free space.

    The disk is shrunk first, as it takes its space from this machine's memory.
    """
    is_over = threading.Event()
    filler = disk / "filler"

    def fill():
        with filler.open("wb", buffering=0) as file:
            while not is_over.is_set():
                try:
                    file.write(bytes(4096))
                except OSError:
                    is_over.wait(0.005)

    status = os.statvfs(disk)
    used_bytes = (status.f_blocks - status.f_bfree) * status.f_frsize
    mount(disk, f"remount,size={used_bytes + 8 * MIB}")
    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        filler.unlink()
        mount(disk, f"remount,size={mib}m")


def mount(folder, options, *source):
    subprocess.run(["mount", "-o", options, *source, str(folder)], check=True)
