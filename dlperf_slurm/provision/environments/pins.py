"""A framework's name -> its pinned requirements, from the pins files that the package ships.

A pins file is a requirements file of pip with exact versions, the framework's first. Its comments
are settings:

    # python: 3.11 3.12 3.10                   Python versions of the pins, the best one first
    # import: torch                            the framework's module, imported as a check
    # horovod: yes                             or no
    # needs: g++ (torch.compile)               programs that pip does not install, and for what
    # build: mpi4py                            has no wheel: built with the environment's own MPI
    # install: --no-deps                       options for pip
    # cuda-libraries: libcublas.so.11 ...      linked with the module, needed even without a GPU
    # libraries-in: oneflow.libs               the folder of site-packages for these libraries

An environment for NVIDIA GPUs, such as "jax-cuda", also uses the framework's file in the folder
`cuda`: its requirements are added or replace those of the same package, and its settings take
precedence. Such a file has more settings:

    # cuda: 13                                 CUDA version of the libraries
    # capabilities: 8.0 8.6 9.0 9.0+ptx        the build's machine code and PTX
    # instead-of: tensorflow_cpu               a package to leave out
    # nvcc: nvidia-cuda-nvcc==13.0.88 ...      CUDA's compiler, for the build of Horovod
    # none: It has builds on ...               why there is no such environment, and what to do
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.folders import CUDA, get_environment_name
from dlperf_slurm.config.suggestions import describe_unknown
from dlperf_slurm.errors import InputError

PINS_DIR = Path(__file__).parent
CUDA_FOLDER = "cuda"
# hashes of all files on PyPI of the pinned packages and Horovod; of PyTorch's CPU build ("+cpu")
# those of the Linux files on PyTorch's own index
HASHES_FOLDER = "hashes"
# name of a package -> framework, where they differ
PACKAGES = {"paddlepaddle": "paddle", "tensorflow": "tensorflow2", "torch": "pytorch"}


@dataclass(frozen=True)
class Pins:
    """The contents of a framework's environment, as its pins file lists them.

    `pythons` are versions like "3.11", the best one first; `module` is imported as a check; `built`
    are packages to build with the environment's MPI; `needs` has system programs, each with what
    does not work without it. For GPUs: the `cuda` version, the supported
    `capabilities`, and the packages of the `compiler` for Horovod. `none` says why there is no
    environment for GPUs.
    """

    framework: str
    requirements: tuple[str, ...]
    pythons: tuple[str, ...]
    module: str
    can_have_horovod: bool
    needs: tuple[tuple[str, str], ...]
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
        """The device that the environment is for: "cuda" or "cpu"."""
        return CUDA if self.cuda else "cpu"

    @property
    def name(self) -> str:
        """The name of the environment: "jax", "jax-cuda"."""
        return get_environment_name(self.framework, self.device)

    @property
    def package(self) -> str:
        """The framework's own package, such as "tensorflow_cpu"."""
        return self.requirements[0].partition("==")[0]

    @property
    def stamp(self) -> str:
        """A hash of all that is installed, to recognize an environment of other pins.

        It does not depend on comments and the Python version.
        """
        content = (*self.requirements, *self.built, *self.pip_options, *self.cuda_libraries)
        return hashlib.sha256("\n".join(content).encode()).hexdigest()


def list_pins() -> list[str]:
    """List the frameworks with pins, sorted."""
    return sorted(path.stem for path in PINS_DIR.glob("*.txt"))


def read_pins(framework: str, device: str = "cpu") -> Pins:
    """Read the pins of a framework for a device; raises InputError for an unknown framework."""
    if framework not in list_pins():
        what = "a framework that `env create` can install"
        raise InputError(describe_unknown(framework, list_pins(), what))
    texts = [(PINS_DIR / f"{framework}.txt").read_text(encoding="utf-8")]
    if device == CUDA:
        texts.insert(0, (PINS_DIR / CUDA_FOLDER / f"{framework}.txt").read_text(encoding="utf-8"))

    def read(key: str) -> list[str]:
        return (_find_value(texts, key) or "").split()

    return Pins(
        framework=framework,
        requirements=_join_requirements(texts, read("instead-of")),
        pythons=tuple(read("python")),
        module=read("import")[0],
        can_have_horovod=read("horovod") == ["yes"] and (device != CUDA or bool(read("nvcc"))),
        needs=tuple(re.findall(r"(\S+) \((.+?)\)", " ".join(read("needs")))),
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
    """Merge the requirements of pins files; of a package in several files, the first one counts.

    `left_out` are packages to leave out.
    """
    lines: dict[str, str] = {}
    for line in "\n".join(texts).splitlines():
        package = line.partition("==")[0]
        if line and not line.startswith("#") and package not in left_out:
            lines.setdefault(normalize_name(package), line)
    return tuple(lines.values())


def add_hashes(framework: str, requirements: Sequence[str], device: str = "cpu") -> list[str]:
    """Return requirements with the hashes of their files, if known; pip rejects other files."""
    hashes: dict[str, list[str]] = {}
    for name in sorted({framework, get_environment_name(framework, device)}):
        path = PINS_DIR / HASHES_FOLDER / f"{name}.txt"
        if path.is_file():
            entries = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
            hashes.update((_normalize(words[0]), words[1:]) for words in map(str.split, entries))
    return [" ".join([line, *hashes.get(_normalize(line), ())]) for line in requirements]


def normalize_name(package: str) -> str:
    """Return the normalized name of a package (PEP 503)."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _normalize(requirement: str) -> str:
    """Return a requirement with its package name normalized, and its version unchanged."""
    name, equals, version = requirement.partition("==")
    return normalize_name(name) + equals + version


def _find_value(texts: Sequence[str], key: str) -> Optional[str]:
    """Return the value of a setting, a comment "# key: value" in the pins files, or None."""
    found = (re.search(rf"^# {key}: (.+)$", text, re.M) for text in texts)
    return next((match[1] for match in found if match), None)
