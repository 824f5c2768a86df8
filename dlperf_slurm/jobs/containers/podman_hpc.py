"""Containers of NERSC's podman-hpc, which takes Podman's words (github.com/NERSC/podman-hpc)."""

from dlperf_slurm.jobs.containers import ContainerStart, Parts, podman


def make_parts(start: ContainerStart) -> Parts:
    return podman.make_parts(start, "podman-hpc")
