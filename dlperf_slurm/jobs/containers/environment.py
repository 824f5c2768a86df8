"""Containers of CSCS's Container Engine: srun's `--environment`, whose file names all mounts."""

from dlperf_slurm.jobs.containers import ContainerStart, Parts


def make_parts(start: ContainerStart) -> Parts:
    """Options of srun; the image is the name or the file of an environment definition."""
    return Parts(launcher_flags=[f"--environment={start.image}", *start.options])
