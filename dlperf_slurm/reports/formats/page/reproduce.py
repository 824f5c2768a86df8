"""A run's manifest and matrix -> shell commands that repeat the run."""

import shlex
from pathlib import PurePath

from dlperf_slurm.jobs.manifest import Manifest

_END = "END_OF_MATRIX"
_PROGRAM = "dlperf-slurm"


def write_command(manifest: Manifest, matrix_toml: str) -> str:
    """Return shell commands that write the matrix file and repeat the command that made the run.

    The matrix is a file in the working directory; without one ("") only the command is returned.
    """
    arguments = list(manifest.command[1:])
    if not matrix_toml:
        return shlex.join([_PROGRAM, *arguments])
    name = f"{manifest.matrix_name}.toml"
    end = _END
    while end in matrix_toml.splitlines():
        end += "_"
    arguments = [name if PurePath(word).name == name else word for word in arguments]
    lines = [f"cat > {shlex.quote(name)} <<'{end}'", matrix_toml.rstrip("\n"), end]
    return "\n".join([*lines, shlex.join([_PROGRAM, *arguments])])
