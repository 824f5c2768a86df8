"""python start_ranks.py COUNT COMMAND...: start ranks on this host as torchrun would, without MPI.

Returns the exit code of the first rank that failed, or 0.
"""

import os
import socket
import subprocess
import sys
import time

LOOPBACK = "127.0.0.1"
# ranks end by themselves if another rank has failed
GRACE_SECONDS = 20.0


def main(arguments):
    count, command = int(arguments[0]), arguments[1:]
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    size = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    shared = {**os.environ, **size, "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(command, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank in range(count)
    ]
    failed_at = None
    while any(rank.poll() is None for rank in ranks):
        if failed_at is None and any(rank.returncode for rank in ranks):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() > failed_at + GRACE_SECONDS:
            for rank in ranks:
                rank.kill()
        time.sleep(0.05)
    return next((abs(rank.returncode) for rank in ranks if rank.returncode), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
