"""Servers that a rank starts and that end with it."""

import os
import subprocess
import sys

from dlperf_slurm.worker.ranks import find_free_port
from dlperf_slurm.worker.servers import is_listening
from support import attempts


def assert_ends_with_rank(module, port_name, **variables):
    """Assert that the server of this module ends when the rank that started it is killed.

    It listens on the port of 127.0.0.1 that the variable `port_name` has.
    """
    port = find_free_port()
    script = f"""if True:
        import os, subprocess, sys
        subprocess.run([sys.executable, "-m", "{module}", str(os.getpid())])"""
    path = os.pathsep.join(name or "." for name in sys.path)
    env = {**os.environ, "PYTHONPATH": path, port_name: str(port), **variables}
    rank = subprocess.Popen([sys.executable, "-c", script], env=env)
    attempts.await_that(lambda: is_listening("127.0.0.1", port), 30)
    rank.kill()
    rank.wait()
    attempts.await_that(lambda: not is_listening("127.0.0.1", port), 30)
