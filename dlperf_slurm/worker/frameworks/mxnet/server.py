"""python -m ...mxnet.server PARENT_ID: what DMLC_ROLE says, as long as the parent lives."""

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
    # The import itself serves, where DMLC_ROLE is not "worker", and then exits.
    import mxnet  # noqa: F401


if __name__ == "__main__":
    main(int(sys.argv[1]))
