"""CSCS's user environments: srun's `--uenv`, which mounts an image beside the host's files."""

from dlperf_slurm.jobs.containers import ContainerStart, Parts


def make_parts(start: ContainerStart) -> Parts:
    """Options of srun; a view is one of `options`."""
    return Parts(launcher_flags=[f"--uenv={start.image}", *start.options])
