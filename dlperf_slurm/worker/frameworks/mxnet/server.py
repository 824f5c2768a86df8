"""python -m ...mxnet.server PARENT_ID: what DMLC_ROLE says, as long as the parent lives."""

import os
import sys

from dlperf_slurm.worker.processes import end_with_parent


def main(parent_id: int) -> None:
    end_with_parent(parent_id)
    # To import MXNet is to serve, in its own way, where the role is not "worker".
    role = os.environ.pop("DMLC_ROLE")
    from dlperf_slurm.worker.frameworks.mxnet.training import serve

    os.environ["DMLC_ROLE"] = role
    serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))
