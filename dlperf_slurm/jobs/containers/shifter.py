"""Containers of Shifter, which brings the site's file systems itself (docs.nersc.gov)."""

from dlperf_slurm.jobs.containers import ContainerStart, Parts


def make_parts(start: ContainerStart) -> Parts:
    """An option of sbatch, so that nodes have the image before the job starts, and words."""
    volumes = [f"--volume={mount}" for mount in start.mounts]
    entrypoint = ["--entrypoint"] if start.has_entrypoint else []
    return Parts(
        directives=[f"--image={start.image}"],
        wrapper=["shifter", f"--image={start.image}", *start.options, *volumes, *entrypoint],
    )
