"""Containers of Enroot, through the options that Pyxis gives srun (github.com/NVIDIA/pyxis)."""

from dlperf_slurm.jobs.containers import ContainerStart, Parts


def make_parts(start: ContainerStart) -> Parts:
    """Options of srun."""
    mounts = ",".join(map(str, start.all_mounts))
    entrypoint = "--container-entrypoint" if start.has_entrypoint else "--no-container-entrypoint"
    return Parts(
        launcher_flags=[
            f"--container-image={start.image}",
            f"--container-mounts={mounts}",
            entrypoint,
            *start.options,
        ]
    )
