"""Runs on the local site whose ranks are stand-ins."""

from collections.abc import Sequence
from pathlib import Path

from dlperf_slurm.run import Run
from support import stand_in
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
    """For TMPDIR, which holds the machine's lock: runs of other tests must not wait for ours."""
    folder = home / ".tmp"
    folder.mkdir()
    return folder


def stage_local(
    home: Path,
    repeats: int = 2,
    topologies: Sequence[str] = ("1n1g",),
    batch_size: str = "8",
    protocol: str = "",
) -> Run:
    """A run directory that waits to be submitted.

    `batch_size` as it stands in a matrix, `protocol` a further line of that table.
    """
    quoted = ", ".join(f'"{topology}"' for topology in topologies)
    text = MATRIX.format(
        repeats=repeats, topologies=quoted, batch_size=batch_size, protocol=protocol
    )
    (home / "matrix.toml").write_text(text, encoding="utf-8")
    setting = f"environments.pytorch.venv={stand_in.make_venv(home / '.venv')}"
    return stage(["matrix.toml", "--site", "local", "--set", setting], home)


def list_attempt_dirs(run: Run) -> list[Path]:
    """In the order of their array tasks."""
    return [run.path / task.attempt_dir for task in run.read_all_tasks()]
