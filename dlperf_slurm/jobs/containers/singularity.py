"""Containers of SingularityCE, one for each rank (singularity-exec(1))."""

from dlperf_slurm.jobs.containers import ContainerStart, Parts


def make_parts(start: ContainerStart) -> Parts:
    """Words before Python; `run` starts the image's own script, `exec` leaves it out."""
    verb = "run" if start.has_entrypoint else "exec"
    binds = [f"--bind={mount}" for mount in start.all_mounts]
    return Parts(wrapper=["singularity", verb, *start.options, *binds, start.image])
