"""A run's manifest and matrix -> commands that a shell runs to make the run again."""

import shlex
from pathlib import PurePath

from dlperf_slurm.jobs.manifest import Manifest

_END = "END_OF_MATRIX"
_PROGRAM = "dlperf-slurm"


def write_command(manifest: Manifest, matrix_toml: str) -> str:
    """The command that made the run, by the program's name; before it what writes its matrix.

    The matrix lies beside it then, and not where it lay when the run was made.
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
