"""python -m ...mxnet.server PARENT_ID: a KVStore server or scheduler, as DMLC_ROLE says.

Ends with its parent process.
"""

import os
import sys

from dlperf_slurm.worker.processes import end_with_parent


def main(parent_id: int) -> None:
    end_with_parent(parent_id)
    # importing MXNet starts MXNet's own server unless the role is "worker"
    role = os.environ.pop("DMLC_ROLE")
    from dlperf_slurm.worker.frameworks.mxnet.training import serve

    os.environ["DMLC_ROLE"] = role
    serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
