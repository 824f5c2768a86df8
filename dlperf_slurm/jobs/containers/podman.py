"""Containers of Podman, one for each rank, with network and memory of the host (podman-run(1))."""

from dlperf_slurm.jobs.containers import HANDED_ON, ContainerStart, Parts


def make_parts(start: ContainerStart, program: str = "podman") -> Parts:
    """Words before Python; a name that ends in * is a beginning of names."""
    env = [f"--env={name}" for name in (*HANDED_ON, *start.env_names)]
    volumes = [f"--volume={mount}" for mount in start.all_mounts]
    entrypoint = [] if start.has_entrypoint else ["--entrypoint="]
    shared = ["--network=host", "--ipc=host", "--pid=host"]
    return Parts(
        wrapper=[
            *(program, "run", "--rm"),
            *(*shared, *env, *volumes, *entrypoint, *start.options, start.image),
        ],
        digest_command=[program, "image", "inspect", "--format=sha256:{{.Id}}", start.image],
    )
