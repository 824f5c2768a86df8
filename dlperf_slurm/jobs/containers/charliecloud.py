"""Containers of Charliecloud, which hands the environment on (ch-run(1))."""

from dlperf_slurm.jobs.containers import ContainerStart, Parts


def make_parts(start: ContainerStart) -> Parts:
    """Words before Python; entry points are not known to ch-run.

    The image has to have the folders that are mounted, or `options` to make them.
    """
    binds = [f"--bind={mount}" for mount in start.all_mounts]
    return Parts(wrapper=["ch-run", *start.options, *binds, start.image, "--"])
