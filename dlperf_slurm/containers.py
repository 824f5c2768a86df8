"""A container image and its settings -> the options and command that start it.

There is one function per runtime, or for runtimes of the same options; RUNTIMES has their names.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

# variables to pass on, beside those of the site, in runtimes that start with an empty environment
PASSED_ON = (
    *("CUDA_*", "DLPERF_SLURM_*", "FI_*", "HIP_*", "HSA_*", "MASTER_*", "MIOPEN_*", "MPICH_*"),
    *("NCCL_*", "OMPI_*", "OMP_NUM_THREADS", "PET_*", "PMI*", "PRTE_*", "PYTHON*", "RANK"),
    *("RCCL_*", "ROCR_*", "SLURM_*", "TORCH_*", "UCX_*", "WORLD_SIZE"),
)
# what the job script itself sets, and an image may set as well
OURS = ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "CUDA_DEVICE_ORDER")


@dataclass(frozen=True)
class ContainerStart:
    """A container image with its settings, from which the command that starts it is made.

    `folders` are mounted as ranks read and write them, at their own paths; `mounts` and `env_names`
    are the mounts, "/folder" or "/outside:/inside", and the names of environment variables that the
    site sets.
    """

    image: str
    options: Sequence[str]
    folders: Sequence[str]
    mounts: Sequence[str]
    has_entrypoint: bool
    env_names: Sequence[str]

    def make_mounts(self, option: str, *, has_folders: bool = True) -> list[str]:
        """Return each mount once, as `option` followed by SOURCE:TARGET.

        Without `has_folders`, only those that the site sets.
        """
        pairs = [f"{folder}:{folder}" for folder in self.folders] if has_folders else []
        own = (mount.partition(":") for mount in self.mounts)
        pairs += [f"{source}:{target or source}" for source, _, target in own]
        return [f"{option}{pair}" for pair in dict.fromkeys(pairs)]


@dataclass(frozen=True)
class ContainerOptions:
    """What a container adds to a job: options of sbatch and srun, and a prefix of ranks' commands.

    `digest_command` prints the image's digest on the batch host, for runtimes that store images
    themselves; it is empty for an image that is a file or folder.
    """

    directives: Sequence[str] = ()
    launcher_flags: Sequence[str] = ()
    wrapper: Sequence[str] = ()
    digest_command: Sequence[str] = ()


def _start_singularity(program: str, start: ContainerStart) -> ContainerOptions:
    """Start Apptainer or SingularityCE before each rank's command (apptainer-exec(1))."""
    # `run` runs the image's runscript, `exec` skips it
    verb = "run" if start.has_entrypoint else "exec"
    binds = start.make_mounts("--bind=")
    return ContainerOptions(wrapper=[program, verb, *start.options, *binds, start.image])


def _start_charliecloud(start: ContainerStart) -> ContainerOptions:
    """Start Charliecloud before each rank's command (ch-run(1)).

    The container inherits the environment. ch-run has no entry points. The mount points must exist
    in the image, unless `options` create them.
    """
    binds = start.make_mounts("--bind=")
    return ContainerOptions(wrapper=["ch-run", *start.options, *binds, start.image, "--"])


def _start_podman(program: str, start: ContainerStart) -> ContainerOptions:
    """Start Podman (podman-run(1)), or NERSC's podman-hpc (github.com/NERSC/podman-hpc).

    The prefix of each rank's command does it. The container uses the host's network.
    """
    # Podman takes NAME* as a prefix
    env = [f"--env={name}" for name in (*PASSED_ON, *start.env_names)]
    entrypoint = [] if start.has_entrypoint else ["--entrypoint="]
    shared = ["--network=host", "--ipc=host", "--pid=host"]
    options = [*shared, *env, *start.make_mounts("--volume="), *entrypoint, *start.options]
    return ContainerOptions(
        wrapper=[program, "run", "--rm", *options, start.image],
        digest_command=[program, "image", "inspect", "--format=sha256:{{.Id}}", start.image],
    )


def _start_pyxis(start: ContainerStart) -> ContainerOptions:
    """Start an Enroot container by the options that Pyxis adds to srun (NVIDIA/pyxis).

    An image's own values of variables would win over those of the job: with another PYTHONPATH,
    other code than the run's copy would run. --container-env is known since Pyxis 0.15.
    """
    mounts = ",".join(start.make_mounts(""))
    entrypoint = "--container-entrypoint" if start.has_entrypoint else "--no-container-entrypoint"
    names = ",".join((*OURS, *start.env_names))
    container = [f"--container-image={start.image}", f"--container-mounts={mounts}", entrypoint]
    container.append(f"--container-env={names}")
    return ContainerOptions(launcher_flags=[*container, *start.options])


def _start_shifter(start: ContainerStart) -> ContainerOptions:
    """Start Shifter before each rank's command.

    Shifter itself mounts the site's file systems. The sbatch option makes nodes load the image
    before the job starts (docs.nersc.gov).
    """
    volumes = start.make_mounts("--volume=", has_folders=False)
    entrypoint = ["--entrypoint"] if start.has_entrypoint else []
    return ContainerOptions(
        directives=[f"--image={start.image}"],
        wrapper=["shifter", f"--image={start.image}", *start.options, *volumes, *entrypoint],
    )


def _start_by_srun(option: str, start: ContainerStart) -> ContainerOptions:
    """Start a container by an option of srun whose value is the image; it also defines all mounts.

    Such are the environment definition files of CSCS's Container Engine, and CSCS's user
    environments, of which `options` may select a view.
    """
    return ContainerOptions(launcher_flags=[f"{option}={start.image}", *start.options])


# by the name in `container.runtime`
RUNTIMES: Mapping[str, Callable[[ContainerStart], ContainerOptions]] = {
    "apptainer": partial(_start_singularity, "apptainer"),
    "charliecloud": _start_charliecloud,
    "environment": partial(_start_by_srun, "--environment"),
    "podman": partial(_start_podman, "podman"),
    "podman_hpc": partial(_start_podman, "podman-hpc"),
    "pyxis": _start_pyxis,
    "shifter": _start_shifter,
    "singularity": partial(_start_singularity, "singularity"),
    "uenv": partial(_start_by_srun, "--uenv"),
}
