"""Build the options and words that start a program in a container; one function per runtime.

A function that is registered here is a runtime, and its name is its name in `container.runtime`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# what a runtime that starts with no environment has to be told to pass on, beside the site's own
PASSED_ON = (
    *("CUDA_*", "DLPERF_SLURM_*", "FI_*", "HIP_*", "HSA_*", "MASTER_*", "MIOPEN_*", "MPICH_*"),
    *("NCCL_*", "OMPI_*", "OMP_NUM_THREADS", "PET_*", "PMI*", "PRTE_*", "PYTHON*", "RANK"),
    *("RCCL_*", "ROCR_*", "SLURM_*", "TORCH_*", "UCX_*", "WORLD_SIZE"),
)


@dataclass(frozen=True)
class Mount:
    """A folder outside, and its path in the container."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}:{self.target}"


@dataclass(frozen=True)
class ContainerStart:
    """An image and how it is to be started.

    `folders` are those that ranks read and write, `mounts` what the site names, `env_names` the
    variables that it sets.
    """

    image: str
    options: Sequence[str]
    folders: Sequence[Mount]
    mounts: Sequence[Mount]
    has_entrypoint: bool
    env_names: Sequence[str]

    @property
    def all_mounts(self) -> list[Mount]:
        """Folders and mounts, each once."""
        return list(dict.fromkeys([*self.folders, *self.mounts]))


@dataclass(frozen=True)
class Parts:
    """What a container needs in each place: options of sbatch, of srun, words before Python.

    `digest_command` prints the image's digest on the batch host, where the runtime keeps images
    itself; one that is a file or a folder needs none.
    """

    directives: Sequence[str] = ()
    launcher_flags: Sequence[str] = ()
    wrapper: Sequence[str] = ()
    digest_command: Sequence[str] = ()


MakeParts = Callable[[ContainerStart], Parts]
RUNTIMES: dict[str, MakeParts] = {}


def parse_mount(text: str) -> Mount:
    """Return the mount that "/folder" or "/outside:/inside" stands for."""
    source, _, target = text.partition(":")
    return Mount(source, target or source)


def _register(make_parts: MakeParts) -> MakeParts:
    RUNTIMES[make_parts.__name__] = make_parts
    return make_parts


@_register
def apptainer(start: ContainerStart) -> Parts:
    """Start a container of Apptainer for each rank (apptainer-exec(1))."""
    return _make_singularity_parts("apptainer", start)


@_register
def singularity(start: ContainerStart) -> Parts:
    """Start a container of SingularityCE for each rank (singularity-exec(1))."""
    return _make_singularity_parts("singularity", start)


def _make_singularity_parts(program: str, start: ContainerStart) -> Parts:
    # `run` starts the image's own script, `exec` leaves it out
    verb = "run" if start.has_entrypoint else "exec"
    binds = [f"--bind={mount}" for mount in start.all_mounts]
    return Parts(wrapper=[program, verb, *start.options, *binds, start.image])


@_register
def charliecloud(start: ContainerStart) -> Parts:
    """Start a container of Charliecloud, which passes the environment on (ch-run(1)).

    ch-run has no entry points. The image must have the folders that are mounted, or `options` make
    them.
    """
    binds = [f"--bind={mount}" for mount in start.all_mounts]
    return Parts(wrapper=["ch-run", *start.options, *binds, start.image, "--"])


@_register
def environment(start: ContainerStart) -> Parts:
    """Use srun's `--environment` of CSCS's Container Engine; its file or name has all mounts."""
    return Parts(launcher_flags=[f"--environment={start.image}", *start.options])


@_register
def podman(start: ContainerStart) -> Parts:
    """Start a container of Podman for each rank, with the host's network (podman-run(1))."""
    return _make_podman_parts("podman", start)


@_register
def podman_hpc(start: ContainerStart) -> Parts:
    """Use NERSC's podman-hpc, which takes Podman's words (github.com/NERSC/podman-hpc)."""
    return _make_podman_parts("podman-hpc", start)


def _make_podman_parts(program: str, start: ContainerStart) -> Parts:
    # a name that ends in * is a prefix of names
    env = [f"--env={name}" for name in (*PASSED_ON, *start.env_names)]
    volumes = [f"--volume={mount}" for mount in start.all_mounts]
    entrypoint = [] if start.has_entrypoint else ["--entrypoint="]
    shared = ["--network=host", "--ipc=host", "--pid=host"]
    options = [*shared, *env, *volumes, *entrypoint, *start.options]
    return Parts(
        wrapper=[program, "run", "--rm", *options, start.image],
        digest_command=[program, "image", "inspect", "--format=sha256:{{.Id}}", start.image],
    )


@_register
def pyxis(start: ContainerStart) -> Parts:
    """Start a container of Enroot by the options that Pyxis adds to srun (NVIDIA/pyxis)."""
    mounts = ",".join(map(str, start.all_mounts))
    entrypoint = "--container-entrypoint" if start.has_entrypoint else "--no-container-entrypoint"
    container = [f"--container-image={start.image}", f"--container-mounts={mounts}", entrypoint]
    return Parts(launcher_flags=[*container, *start.options])


@_register
def shifter(start: ContainerStart) -> Parts:
    """Start a container of Shifter, which mounts the site's file systems itself.

    The option of sbatch gives nodes the image before the job starts (docs.nersc.gov).
    """
    volumes = [f"--volume={mount}" for mount in start.mounts]
    entrypoint = ["--entrypoint"] if start.has_entrypoint else []
    return Parts(
        directives=[f"--image={start.image}"],
        wrapper=["shifter", f"--image={start.image}", *start.options, *volumes, *entrypoint],
    )


@_register
def uenv(start: ContainerStart) -> Parts:
    """Mount a user environment of CSCS by srun's `--uenv`; a view is one of `options`."""
    return Parts(launcher_flags=[f"--uenv={start.image}", *start.options])
