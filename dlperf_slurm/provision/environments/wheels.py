"""A requirement that has no wheel -> one, built in an environment and kept beside it."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from dlperf_slurm.provision.environments.installation import Installation


def find_wheel(installation: Installation, key: str) -> Optional[Path]:
    """The wheel that was built under this key; it names all that the wheel depends on."""
    return next(_find_folder(installation, key).glob("*.whl"), None)


def build_wheel(
    installation: Installation, requirement: str, key: str, variables: Mapping[str, str]
) -> Path:
    """Build `requirement` with what is in the environment, and keep the wheel.

    Nothing is fetched but its sources.
    """
    folder = _find_folder(installation, key)
    partial = folder.with_name(f"{key}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # pip's own cache may hold a wheel that was built with another MPI
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--verbose"]
    command = [*installation.pip, "wheel", *options, "--wheel-dir", str(partial), requirement]
    installation.run_step(f"building {requirement} (some minutes)", command, variables)
    partial.replace(folder)
    return next(folder.glob("*.whl"))


def install_wheel(installation: Installation, wheel: Path) -> None:
    options = ["--no-deps", "--no-index", "--force-reinstall"]
    installation.run_step(
        f"installing {wheel.name}", [*installation.pip, "install", *options, str(wheel)]
    )


def _find_folder(installation: Installation, key: str) -> Path:
    return installation.environment.parent / "wheels" / key
