"""Runs on the local site with fake ranks."""

from collections.abc import Sequence
from pathlib import Path

from dlperf_slurm.jobs.run_directory import Run
from support import fake_environment
from support.tool import stage

MATRIX = """\
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = [{topologies}]
batch_size_per_device = {batch_size}
[protocol]
repeats = {repeats}
{protocol}
"""


def make_temp_dir(home: Path) -> Path:
    """Make a TMPDIR, which contains the machine's lock: runs of other tests must not wait."""
    folder = home / ".tmp"
    folder.mkdir()
    return folder


def stage_local(
    home: Path,
    repeats: int = 2,
    topologies: Sequence[str] = ("1n1g",),
    batch_size: str = "8",
    protocol: str = "",
    settings: Sequence[str] = (),
) -> Run:
    """Stage a run directory without submitting it.

    `batch_size` is TOML text of the matrix, `protocol` a further line of that table, `settings`
    additional site values.
    """
    write_matrix_file(home, repeats, topologies, batch_size, protocol)
    venv = f"environments.pytorch.venv={fake_environment.make_venv(home / '.venv')}"
    # fake ranks may share CPUs
    settings = (venv, "max_devices_per_node=8", *settings)
    options = [part for setting in settings for part in ("--set", setting)]
    return stage(["matrix.toml", "--site", "local", *options], home)


def write_matrix_file(
    home: Path,
    repeats: int = 2,
    topologies: Sequence[str] = ("1n1g",),
    batch_size: str = "8",
    protocol: str = "",
) -> None:
    """Write the matrix of `stage_local` as matrix.toml."""
    quoted = ", ".join(f'"{topology}"' for topology in topologies)
    text = MATRIX.format(
        repeats=repeats, topologies=quoted, batch_size=batch_size, protocol=protocol
    )
    (home / "matrix.toml").write_text(text, encoding="utf-8")


def list_attempt_dirs(run: Run) -> list[Path]:
    """Make the attempt directories as started tasks do; return them in array task order."""
    folders = [run.path / task.attempt_dir for task in run.read_all_tasks()]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return folders
