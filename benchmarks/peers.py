"""Other benchmark tools -> the commands that render a matrix for Slurm, without submitting.

All render the same matrix: 4 topologies x 2 precisions x repeats. Pinned versions of Maestro and
ReFrame are installed with pip below .venv/peers; JUBE and Ramble are not on PyPI, and are used if
they are on PATH. The inputs are in benchmarks/peers/.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from measuring import CHECKOUT

INPUTS = Path(__file__).with_name("peers")
VENVS = CHECKOUT / ".venv" / "peers"
# topologies x precisions of the matrix
CASES = 8


class PeerMissing(Exception):
    """A tool that is not available here; the text says why."""


@dataclass(frozen=True)
class Peer:
    """A tool: how to get its program, and the command to run in a folder with its inputs."""

    title: str
    program: str
    command: tuple[str, ...]  # after the program; {repeats} is a number
    inputs: Mapping[str, str]  # of benchmarks/peers/: name there -> name in the folder
    requirement: str = ""  # of the package index; without one the program has to be on PATH
    before: tuple[str, ...] = ()  # a command that is not measured; inputs come after it


PEERS = {
    "maestro": Peer(
        "Maestro 1.2.1",
        "maestro",
        (
            *("run", "-y", "-fg", "--dry", "-o", "out"),
            *("-p", "maestro_parameters.py", "--pargs", "COUNT:{repeats}", "maestro.yaml"),
        ),
        {name: name for name in ("maestro.yaml", "maestro_parameters.py")},
        "maestrowf==1.2.1",
    ),
    "reframe": Peer(
        "ReFrame 4.10.4",
        "reframe",
        (
            *("-C", "reframe_settings.py", "-c", "reframe_test.py", "--repeat={repeats}"),
            *("--prefix", "out", "--dry-run"),
        ),
        {name: name for name in ("reframe_settings.py", "reframe_test.py")},
        "reframe-hpc==4.10.4",
    ),
    "jube": Peer(
        "JUBE",
        "jube",
        ("run", "jube.yaml", "--hide-animation"),
        {"jube.yaml": "jube.yaml", "jube_job.in": "job.in"},
    ),
    "ramble": Peer(
        "Ramble",
        "ramble",
        ("--disable-progress-bar", "-D", "out", "workspace", "setup", "--dry-run"),
        {
            "ramble.yaml": "out/configs/ramble.yaml",
            "ramble_job.tpl": "out/configs/execute_experiment.tpl",
        },
        before=("workspace", "create", "-d", "out"),
    ),
}


def find_program(peer: Peer) -> str:
    """Return the path of a peer's program, installed if possible; raises PeerMissing."""
    if not peer.requirement:
        found = shutil.which(peer.program)
        if found is None:
            raise PeerMissing(f"{peer.program} is not on PATH, and not in the package index")
        return found
    venv = VENVS / peer.requirement
    program = venv / "bin" / peer.program
    if not program.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
            pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, peer.requirement], check=True)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(venv, ignore_errors=True)
            raise PeerMissing(f"pip cannot install {peer.requirement}") from error
    return str(program)


def prepare(peer: Peer, folder: Path, repeats: int) -> list[str]:
    """Write a peer's inputs into an empty folder; return the command to measure there."""
    program = find_program(peer)
    if peer.before:
        env = {**os.environ, "HOME": str(folder)}
        subprocess.run(
            [program, *peer.before], cwd=folder, env=env, check=True, capture_output=True
        )
    for name, target in peer.inputs.items():
        text = (INPUTS / name).read_text(encoding="utf-8").replace("REPEATS", str(repeats))
        (folder / target).write_text(text, encoding="utf-8")
    return [program, *(word.format(repeats=repeats) for word in peer.command)]
