"""python -m ...mindspore.scheduler PARENT_ID: brings the ranks together while the parent lives."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent_id: int) -> None:
    """Serve until the ranks are done, or the parent ends in whatever way (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_id:
        return
    import mindspore

    mindspore.set_device("CPU")
    # serves, where MS_ROLE is MS_SCHED
    mindspore.communication.init()


if __name__ == "__main__":
    main(int(sys.argv[1]))
