"""Rights of an ordinary user, also where the tests run as root."""

import os
from contextlib import contextmanager


@contextmanager
def as_ordinary_user(folder):
    """Give up root for a while, which may read everything; the user can enter pytest's `folder`."""
    for path in (folder, *folder.parents):
        # pytest-of-USER, pytest-N and, in a process of several, popen-gwN
        if path == folder or path.name.startswith(("pytest-", "popen-")):
            path.chmod(0o755)
    if os.geteuid() == 0:
        os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        if os.getresuid()[2] == 0:
            os.setresuid(0, 0, 0)
