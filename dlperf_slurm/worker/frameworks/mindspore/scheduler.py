"""python -m ...mindspore.scheduler PARENT_ID: MindSpore's scheduler, which connects the ranks."""

import sys

from dlperf_slurm.worker.processes import end_with_parent


def main(parent_id: int) -> None:
    """Run MindSpore's scheduler until the ranks have finished or the process `parent_id` ends."""
    end_with_parent(parent_id)
    import mindspore

    mindspore.set_device("CPU")
    # with MS_ROLE=MS_SCHED, this call serves
    mindspore.communication.init()


if __name__ == "__main__":
    main(int(sys.argv[1]))
