"""Programs of the system -> which are missing, and how to get them."""

import shutil
from collections.abc import Iterable, Sequence

DEBIAN_PACKAGES = {"nm": "binutils"}


def list_missing(programs: Iterable[str]) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]


def describe_missing(programs: Sequence[str]) -> str:
    """ "no cmake and no g++ on PATH; ..." with the command that installs them."""
    missing = " and ".join(f"no {program}" for program in programs)
    packages = " ".join(DEBIAN_PACKAGES.get(program, program) for program in programs)
    return f"{missing} on PATH; load a module, or on Debian: apt-get install {packages}"
