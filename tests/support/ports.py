"""Wait for a port of this machine to be opened or closed."""

from dlperf_slurm.worker.servers import is_listening
from support import attempts


def wait_until_listening(port, is_expected):
    attempts.await_that(lambda: is_listening("127.0.0.1", port) == is_expected, 30)
