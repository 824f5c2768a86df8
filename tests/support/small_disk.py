"""A disk of a few MiB, for tests that fill it."""

import os
import subprocess
from contextlib import contextmanager

MIB = 2**20


def find_obstacle():
    """Why no disk can be mounted here; empty if one can."""
    return "" if os.geteuid() == 0 else "mounting a tmpfs takes root: sudo make test-unit"


@contextmanager
def mount_disk(folder, mib):
    """A tmpfs of that size at the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    subprocess.run(command, check=True)
    try:
        yield folder
    finally:
        # processes of a test that failed may still be in it
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
