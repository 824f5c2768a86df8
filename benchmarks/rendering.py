"""CPU time, files and folders of rendering a matrix, by this tool and by others.

4 topologies x 2 precisions x repeats, an array task or a job each; nothing is submitted. Our runs
and those of the peer alternate.
"""

import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

from measuring import TOOL, CommandFailed, Cost, count_entries, measure_command
from peers import CASES, PEERS, PeerMissing, prepare
from rows import Row, print_rows

ROUNDS = 3
# numbers of array tasks; for 1,000 ReFrame takes two minutes of CPU time, and JUBE even more
SIZES = {"maestro": (1000, 10_000), "ramble": (1000,), "jube": (100,), "reframe": (100,)}
LIMIT_SECONDS = 900
# the largest ratio of our figure to the peer's, at the largest size
TARGET_RATIOS = {"maestro": 1 / 20}
WHY_MISSED = (
    "The start of Python and of the libraries is a third of a second of it, whatever the matrix. "
    "Scripts are rendered once per group of array tasks, and cases are planned once each."
)
MATRIX = """
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = ["1n1g", "1n8g", "2n8g", "4n8g"]
precision = ["fp32", "amp-fp16"]
batch_size_per_device = 32
[protocol]
repeats = {repeats}
"""
SITE = """
device = "cpu"
gpu_request = "none"
[environments.pytorch]
modules = ["pytorch"]
"""


class Rendered(NamedTuple):
    """The cost of rendering, and the numbers of files and folders written."""

    cost: Cost
    files: int
    folders: int


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of parts 1 and 2 that have a peer."""
    rows = []
    for name, sizes in SIZES.items():
        for size in sizes:
            rows += compare(name, max(CASES, size // 10) if is_quick else size, size == 10_000)
    return rows


def compare(name: str, tasks: int, is_target_size: bool) -> list[Row]:
    """Measure ours and one peer in turn."""
    repeats = tasks // CASES
    title = PEERS[name].title
    ours, theirs, problem = [], [], ""
    for _ in range(ROUNDS if tasks <= 1000 else 1):
        ours.append(render_ours(repeats))
        try:
            theirs.append(render_peer(name, repeats))
        except (PeerMissing, CommandFailed) as error:
            problem = f"{title}: {error}"
            break
    tasks = CASES * repeats
    command = "python benchmarks/rendering.py"
    return [
        Row(
            part=2,
            name=f"{tasks:,} array tasks rendered, beside {title}",
            measured=median(one.cost.cpu_seconds for one in ours),
            unit="CPU s",
            command=command,
            peer=title,
            peer_measured=median(one.cost.cpu_seconds for one in theirs) if theirs else None,
            target_ratio=TARGET_RATIOS.get(name) if is_target_size else None,
            why_missed=WHY_MISSED,
            problem=problem,
        ),
        Row(
            part=1,
            name=f"{tasks:,} array tasks rendered, beside {title}: files and folders",
            measured=ours[0].files + ours[0].folders,
            unit="",
            command=command,
            peer=title,
            peer_measured=theirs[0].files + theirs[0].folders if theirs else None,
            problem=problem,
        ),
    ]


def render_ours(repeats: int) -> Rendered:
    """Measure `render`, which stages everything that `submit` would submit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "matrix.toml").write_text(MATRIX.format(repeats=repeats), encoding="utf-8")
        (folder / "site.toml").write_text(SITE, encoding="utf-8")
        command = [*TOOL, "render", "matrix.toml", "--site", "site.toml", "--results", "out"]
        cost = measure_command(command, folder)
        return Rendered(cost, *count_entries(folder / "out"))


def render_peer(name: str, repeats: int) -> Rendered:
    """Measure a peer; raises PeerMissing or CommandFailed."""
    with tempfile.TemporaryDirectory() as folder:
        command = prepare(PEERS[name], Path(folder), repeats)
        cost = measure_command(command, Path(folder), {"HOME": folder}, LIMIT_SECONDS)
        return Rendered(cost, *count_entries(Path(folder, "out")))


if __name__ == "__main__":
    print_rows(measure_rows)
