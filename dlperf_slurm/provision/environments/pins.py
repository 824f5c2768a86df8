"""An environment's name -> what it is made of, from the files that the package ships.

A pins file is a requirements file of pip with exact versions, the framework's first. Comments say

    # python: 3.11 3.12 3.10                   versions that the pins are for, the best one first
    # import: torch                            the module that must load at the end
    # horovod: yes                             or no
    # needs: g++ (torch.compile)               programs that pip does not bring, and for what
    # build: mpi4py                            has no wheel: built with the environment's own MPI
    # install: --no-deps                       options for pip
    # cuda-libraries: libcublas.so.11 ...      that the module is linked with, GPU or not
    # libraries-in: oneflow.libs               the folder of site-packages where it looks for them

An environment for NVIDIA GPUs, as in "jax-cuda", is of that file and of the framework's one in the
folder `cuda`: its requirements come to the others or take the place of the same package, and its
comments go before those of the framework's. They are of these too:

    # cuda: 13                                 version of CUDA that its libraries are of
    # capabilities: 8.0 8.6 9.0 9.0+ptx        GPUs that the build has code for, machine or PTX
    # instead-of: tensorflow_cpu               a package that is left out
    # nvcc: nvidia-cuda-nvcc==13.0.88 ...      CUDA's compiler, which Horovod is built with
    # none: It has builds on ...               why there is no such environment, and what to do
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.folders import CUDA, name_environment
from dlperf_slurm.config.known_names import check_known
from dlperf_slurm.errors import InputError

PINS_DIR = Path(__file__).parent
CUDA_FOLDER = "cuda"
# the hashes of every file that PyPI has of the pins, of Horovod too; of PyTorch's build for CPUs
# ("+cpu") those that its own index has for Linux
HASHES_FOLDER = "hashes"
# names of packages -> the frameworks that they are installed for
PACKAGES = {"paddlepaddle": "paddle", "tensorflow": "tensorflow2", "torch": "pytorch"}


@dataclass(frozen=True)
class Need:
    """A program of the system, and what does not work without it."""

    program: str
    reason: str


@dataclass(frozen=True)
class Pins:
    """What a framework's environment is made of; `pythons` are "3.11", the best one first.

    One for GPUs has the version of CUDA that it is for, the `capabilities` of the GPUs, and the
    packages of the `compiler` that Horovod takes; `none` says why there is no such one.
    """

    framework: str
    requirements: tuple[str, ...]
    pythons: tuple[str, ...]
    module: str
    can_have_horovod: bool
    needs: tuple[Need, ...]
    built: tuple[str, ...]
    pip_options: tuple[str, ...]
    cuda_libraries: tuple[str, ...]
    libraries_folder: str
    cuda: str = ""
    capabilities: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()
    none: str = ""

    @property
    def device(self) -> str:
        """The device that the environment is for."""
        return CUDA if self.cuda else "cpu"

    @property
    def name(self) -> str:
        """The name of the environment: "jax", "jax-cuda"."""
        return name_environment(self.framework, self.device)

    @property
    def package(self) -> str:
        """The package that the framework is, as in "tensorflow_cpu"."""
        return self.requirements[0].partition("==")[0]

    @property
    def stamp(self) -> str:
        """A hash of all that is installed; comments and the Python are not in it."""
        content = (*self.requirements, *self.built, *self.pip_options, *self.cuda_libraries)
        return hashlib.sha256("\n".join(content).encode()).hexdigest()

    def find_requirement(self, package: str) -> str:
        """The line of a package, as in "mpi4py==4.0.3"; raises StopIteration without a pin."""
        return next(line for line in self.requirements if line.startswith(f"{package}=="))


def list_pins() -> list[str]:
    """The names of the frameworks that the package has pins for, sorted."""
    return sorted(path.stem for path in PINS_DIR.glob("*.txt"))


def read_pins(framework: str, device: str = "cpu") -> Pins:
    """The pins of a framework's environment for a device; raises InputError for an unknown one."""
    try:
        check_known(framework, list_pins(), "a framework with pins")
    except ValueError as error:
        raise InputError(str(error)) from error
    texts = [(PINS_DIR / f"{framework}.txt").read_text(encoding="utf-8")]
    if device == CUDA:
        texts.insert(0, (PINS_DIR / CUDA_FOLDER / f"{framework}.txt").read_text(encoding="utf-8"))

    def read(key: str) -> list[str]:
        return _read_words(texts, key)

    return Pins(
        framework=framework,
        requirements=_join_requirements(texts, read("instead-of")),
        pythons=tuple(read("python")),
        module=read("import")[0],
        can_have_horovod=read("horovod") == ["yes"] and (device != CUDA or bool(read("nvcc"))),
        needs=tuple(_read_needs(texts)),
        built=tuple(read("build")),
        pip_options=tuple(read("install")),
        cuda_libraries=tuple(read("cuda-libraries")),
        libraries_folder="".join(read("libraries-in")),
        cuda="".join(read("cuda")),
        capabilities=tuple(read("capabilities")),
        compiler=tuple(read("nvcc")),
        none=_find_value(texts, "none") or "",
    )


def _join_requirements(texts: Sequence[str], left_out: Collection[str]) -> tuple[str, ...]:
    """The requirements of files, of which earlier ones go before; the framework's is the first."""
    lines: dict[str, str] = {}
    for line in "\n".join(texts).splitlines():
        package = line.partition("==")[0]
        if line and not line.startswith("#") and package not in left_out:
            lines.setdefault(_name_package(line), line)
    return tuple(lines.values())


def add_hashes(framework: str, requirements: Sequence[str], device: str = "cpu") -> list[str]:
    """Return the requirements with the hashes of their files; others are then not installed."""
    hashes: dict[str, list[str]] = {}
    for name in sorted({framework, name_environment(framework, device)}):
        path = PINS_DIR / HASHES_FOLDER / f"{name}.txt"
        if path.is_file():
            entries = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
            hashes.update((_normalize(words[0]), words[1:]) for words in map(str.split, entries))
    return [" ".join([line, *hashes.get(_normalize(line), ())]) for line in requirements]


def _name_package(requirement: str) -> str:
    """The name that all spellings of a package share (PEP 503)."""
    return re.sub(r"[-_.]+", "-", requirement.partition("==")[0]).lower()


def _normalize(requirement: str) -> str:
    """A pin by that name of its package."""
    _, equals, version = requirement.partition("==")
    return _name_package(requirement) + equals + version


def _find_value(texts: Sequence[str], key: str) -> Optional[str]:
    found = (re.search(rf"^# {key}: (.+)$", text, re.M) for text in texts)
    return next((match[1] for match in found if match), None)


def _read_words(texts: Sequence[str], key: str) -> list[str]:
    return (_find_value(texts, key) or "").split()


def _read_needs(texts: Sequence[str]) -> list[Need]:
    pairs = re.findall(r"(\S+) \((.+?)\)", _find_value(texts, "needs") or "")
    return [Need(program, reason) for program, reason in pairs]
