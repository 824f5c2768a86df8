"""An image and what to mount -> the words that put a program into it; one module per runtime.

A module is named as in `container.runtime`, and has `make_parts(start)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

# what a runtime that starts with no environment has to be told to hand on, beside the site's own
HANDED_ON = (
    *("CUDA_*", "DLPERF_SLURM_*", "FI_*", "HIP_*", "HSA_*", "MASTER_*", "MIOPEN_*", "MPICH_*"),
    *("NCCL_*", "OMPI_*", "OMP_NUM_THREADS", "PET_*", "PMI*", "PRTE_*", "PYTHON*", "RANK"),
    *("RCCL_*", "ROCR_*", "SLURM_*", "TORCH_*", "UCX_*", "WORLD_SIZE"),
)


@dataclass(frozen=True)
class Mount:
    """A folder outside, and where it is in the container."""

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


class Runtime(Protocol):
    def make_parts(self, start: ContainerStart) -> Parts: ...


def make_parts(runtime: str, start: ContainerStart) -> Parts:
    """What starts a container with that runtime.

    Raises ModuleNotFoundError for a runtime that is not a module of this package.
    """
    return cast(Runtime, import_module(f"{__name__}.{runtime}")).make_parts(start)


def parse_mount(text: str) -> Mount:
    """The mount that "/folder" or "/outside:/inside" stands for."""
    source, _, target = text.partition(":")
    return Mount(source, target or source)
