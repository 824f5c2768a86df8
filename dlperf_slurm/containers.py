"""A container image and its settings -> the options and command that start it; one per runtime.

The name of a registered function is the runtime's name in `container.runtime`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# variables to pass on, beside those of the site, in runtimes that start with an empty environment
PASSED_ON = (
    *("CUDA_*", "DLPERF_SLURM_*", "FI_*", "HIP_*", "HSA_*", "MASTER_*", "MIOPEN_*", "MPICH_*"),
    *("NCCL_*", "OMPI_*", "OMP_NUM_THREADS", "PET_*", "PMI*", "PRTE_*", "PYTHON*", "RANK"),
    *("RCCL_*", "ROCR_*", "SLURM_*", "TORCH_*", "UCX_*", "WORLD_SIZE"),
)
# what the job script itself sets, and an image may set as well
OURS = ("PYTHONPATH", "PYTHONNOUSERSITE", "PYTHONUNBUFFERED", "CUDA_DEVICE_ORDER")


@dataclass(frozen=True)
class Mount:
    """A bind mount: a folder of the host, and its path in the container."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}:{self.target}"


@dataclass(frozen=True)
class ContainerStart:
    """A container image with its settings, from which the command that starts it is made.

    `folders` are mounted as ranks read and write them; `mounts` and `env_names` are the mounts and
    the names of environment variables that the site sets.
    """

    image: str
    options: Sequence[str]
    folders: Sequence[Mount]
    mounts: Sequence[Mount]
    has_entrypoint: bool
    env_names: Sequence[str]

    @property
    def all_mounts(self) -> list[Mount]:
        """The mounts of `folders` and `mounts` together, without duplicates."""
        return list(dict.fromkeys([*self.folders, *self.mounts]))


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


MakeParts = Callable[[ContainerStart], ContainerOptions]
RUNTIMES: dict[str, MakeParts] = {}


def parse_mount(text: str) -> Mount:
    """Parse a mount: "/folder/on/host:/in/container", or "/folder" for the same path in both."""
    source, _, target = text.partition(":")
    return Mount(source, target or source)


def _register(make_parts: MakeParts) -> MakeParts:
    RUNTIMES[make_parts.__name__] = make_parts
    return make_parts


@_register
def apptainer(start: ContainerStart) -> ContainerOptions:
    """Return the prefix of each rank's command that starts Apptainer (apptainer-exec(1)).

    `start` has the image, its options and its mounts.
    """
    return _make_singularity_parts("apptainer", start)


@_register
def singularity(start: ContainerStart) -> ContainerOptions:
    """Return the prefix of each rank's command that starts SingularityCE (singularity-exec(1)).

    `start` has the image, its options and its mounts.
    """
    return _make_singularity_parts("singularity", start)


def _make_singularity_parts(program: str, start: ContainerStart) -> ContainerOptions:
    # `run` runs the image's runscript, `exec` skips it
    verb = "run" if start.has_entrypoint else "exec"
    binds = [f"--bind={mount}" for mount in start.all_mounts]
    return ContainerOptions(wrapper=[program, verb, *start.options, *binds, start.image])


@_register
def charliecloud(start: ContainerStart) -> ContainerOptions:
    """Return the prefix of each rank's command that starts a Charliecloud container (ch-run(1)).

    `start` has the image, its options and its mounts. The container inherits the environment.
    ch-run has no entry points. The mount points must exist in the image, unless `options` create
    them.
    """
    binds = [f"--bind={mount}" for mount in start.all_mounts]
    return ContainerOptions(wrapper=["ch-run", *start.options, *binds, start.image, "--"])


@_register
def environment(start: ContainerStart) -> ContainerOptions:
    """Return the srun option `--environment` of CSCS's Container Engine.

    Its value is the environment definition file (`start.image`), which also defines all mounts.
    """
    return ContainerOptions(launcher_flags=[f"--environment={start.image}", *start.options])


@_register
def podman(start: ContainerStart) -> ContainerOptions:
    """Return the prefix of each rank's command that starts a Podman container (podman-run(1)).

    `start` has the image, its options and its mounts. The container uses the host's network.
    """
    return _make_podman_parts("podman", start)


@_register
def podman_hpc(start: ContainerStart) -> ContainerOptions:
    """Return the prefix of each rank's command that starts a container of NERSC's podman-hpc.

    `start` has the image, its options and its mounts. The source is github.com/NERSC/podman-hpc.
    """
    return _make_podman_parts("podman-hpc", start)


def _make_podman_parts(program: str, start: ContainerStart) -> ContainerOptions:
    # Podman takes NAME* as a prefix
    env = [f"--env={name}" for name in (*PASSED_ON, *start.env_names)]
    volumes = [f"--volume={mount}" for mount in start.all_mounts]
    entrypoint = [] if start.has_entrypoint else ["--entrypoint="]
    shared = ["--network=host", "--ipc=host", "--pid=host"]
    options = [*shared, *env, *volumes, *entrypoint, *start.options]
    return ContainerOptions(
        wrapper=[program, "run", "--rm", *options, start.image],
        digest_command=[program, "image", "inspect", "--format=sha256:{{.Id}}", start.image],
    )


@_register
def pyxis(start: ContainerStart) -> ContainerOptions:
    """Return the options that Pyxis adds to srun to start an Enroot container (NVIDIA/pyxis).

    `start` has the image, its options and its mounts. An image's own values of variables would win
    over those of the job: with another PYTHONPATH, other code than the run's copy would run.
    --container-env is known since Pyxis 0.15.
    """
    mounts = ",".join(map(str, start.all_mounts))
    entrypoint = "--container-entrypoint" if start.has_entrypoint else "--no-container-entrypoint"
    names = ",".join((*OURS, *start.env_names))
    container = [f"--container-image={start.image}", f"--container-mounts={mounts}", entrypoint]
    container.append(f"--container-env={names}")
    return ContainerOptions(launcher_flags=[*container, *start.options])


@_register
def shifter(start: ContainerStart) -> ContainerOptions:
    """Return the prefix of each rank's command that starts Shifter, and an sbatch option.

    `start` has the image, its options and its mounts. Shifter itself mounts the site's file
    systems. The sbatch option makes nodes load the image before the job starts (docs.nersc.gov).
    """
    volumes = [f"--volume={mount}" for mount in start.mounts]
    entrypoint = ["--entrypoint"] if start.has_entrypoint else []
    return ContainerOptions(
        directives=[f"--image={start.image}"],
        wrapper=["shifter", f"--image={start.image}", *start.options, *volumes, *entrypoint],
    )


@_register
def uenv(start: ContainerStart) -> ContainerOptions:
    """Return the srun option `--uenv`, which mounts a CSCS user environment.

    Its value is `start.image`; `start.options` may select a view.
    """
    return ContainerOptions(launcher_flags=[f"--uenv={start.image}", *start.options])
