"""A framework's name -> what its environment is made of, from the file that the package ships.

A pins file is a requirements file of pip with exact versions, the framework's first. Comments say

    # python: 3.11 3.12 3.10                   versions that the pins are for, the best one first
    # import: torch                            the module that must load at the end
    # horovod: yes                             or no
    # needs: g++ (torch.compile)               programs that pip does not bring, and for what
    # build: mpi4py                            has no wheel: built with the environment's own MPI
    # install: --no-deps                       options for pip
    # cuda-libraries: libcublas.so.11 ...      that the module is linked with, GPU or not
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.errors import InputError

PINS_DIR = Path(__file__).parent
# the hashes of every file that PyPI has of the pins, of Horovod too
HASHES_FOLDER = "hashes"


@dataclass(frozen=True)
class Need:
    """A program of the system, and what does not work without it."""

    program: str
    reason: str


@dataclass(frozen=True)
class Pins:
    """What a framework's environment is made of; `pythons` are "3.11", the best one first."""

    framework: str
    requirements: tuple[str, ...]
    pythons: tuple[str, ...]
    module: str
    can_have_horovod: bool
    needs: tuple[Need, ...]
    built: tuple[str, ...]
    pip_options: tuple[str, ...]
    cuda_libraries: tuple[str, ...]

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


def read_pins(framework: str) -> Pins:
    """The pins of a framework; raises InputError for an unknown one."""
    if framework not in list_pins():
        raise InputError(f"{framework!r} has no pins; known: {', '.join(list_pins())}")
    text = (PINS_DIR / f"{framework}.txt").read_text(encoding="utf-8")
    return Pins(
        framework=framework,
        requirements=tuple(x for x in text.splitlines() if x and not x.startswith("#")),
        pythons=tuple(_read_words(text, "python")),
        module=_read_words(text, "import")[0],
        can_have_horovod=_read_words(text, "horovod") == ["yes"],
        needs=tuple(_read_needs(text)),
        built=tuple(_read_words(text, "build")),
        pip_options=tuple(_read_words(text, "install")),
        cuda_libraries=tuple(_read_words(text, "cuda-libraries")),
    )


def add_hashes(framework: str, requirements: Sequence[str]) -> list[str]:
    """The requirements with the hashes of their files; pip then takes no other, from any index.

    PyTorch has none: an index of its own, or a site's, serves the build for the GPUs there.
    """
    path = PINS_DIR / HASHES_FOLDER / f"{framework}.txt"
    if not path.is_file():
        return list(requirements)
    entries = path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    hashes = {_normalize(words[0]): words[1:] for words in map(str.split, entries) if words}
    return [" ".join([line, *hashes.get(_normalize(line), ())]) for line in requirements]


def _normalize(requirement: str) -> str:
    """A pin by the name that all spellings of its package share (PEP 503)."""
    name, equals, version = requirement.partition("==")
    return re.sub(r"[-_.]+", "-", name).lower() + equals + version


def _find_value(text: str, key: str) -> Optional[str]:
    match = re.search(rf"^# {key}: (.+)$", text, re.M)
    return match[1] if match else None


def _read_words(text: str, key: str) -> list[str]:
    return (_find_value(text, key) or "").split()


def _read_needs(text: str) -> list[Need]:
    pairs = re.findall(r"(\S+) \((.+?)\)", _find_value(text, "needs") or "")
    return [Need(program, reason) for program, reason in pairs]
