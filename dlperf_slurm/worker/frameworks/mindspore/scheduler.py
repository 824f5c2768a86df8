"""python -m ...mindspore.scheduler PARENT_ID: brings the ranks together while the parent lives."""

import sys

from dlperf_slurm.worker.processes import end_with_parent


def main(parent_id: int) -> None:
    """Serve until the ranks are done, or the parent ends in whatever way."""
    end_with_parent(parent_id)
    import mindspore

    mindspore.set_device("CPU")
    # serves, where MS_ROLE is MS_SCHED
    mindspore.communication.init()


if __name__ == "__main__":
    main(int(sys.argv[1]))
