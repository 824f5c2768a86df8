"""CPU time, memory and files of submitting array jobs, by this tool and by plain submitit.

Both submit the same number of array tasks to an `sbatch` that only prints a job id, each in a fresh
process: ours from the matrix to the journaled job id, submitit's by `map_array` of a shell command.
"""

import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from measuring import TOOL, Cost, count_entries, measure_command
from rows import Row, print_rows

SIZES = (1000, 10_000)

FAKE_CLIENTS = {
    # submitit parses the full message, this tool uses --parsable
    "sbatch": '#!/bin/sh\n[ "$1" = --parsable ] || printf "Submitted batch job "\necho $$\n',
    "squeue": "#!/bin/sh\n",
    "srun": "#!/bin/sh\n",
    "scontrol": "#!/bin/sh\necho 'MaxArraySize = 1001'\n",
}

REPEATS = 10
OURS = [*TOOL, "submit", "matrix.toml", "--site", "site.toml"]

# submitit does not split arrays: one array per 1001 tasks, the cluster's MaxArraySize
STOCK = """
import sys, submitit
executor = submitit.SlurmExecutor("runs")
executor.update_parameters(time=30, nodes=1, ntasks_per_node=1)
command = submitit.helpers.CommandFunction(["true"])
tasks = list(range(int(sys.argv[1])))
for first in range(0, len(tasks), 1001):
    executor.map_array(command, tasks[first:first + 1001])
"""

MATRIX = """
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = "1n1g"
batch_size_per_device = {sizes}
[protocol]
repeats = 10
"""

SITE = """
device = "cpu"
gpu_request = "none"
[environments.pytorch]
modules = ["pytorch"]
"""


class Submitted(NamedTuple):
    """The cost of a submission, and the numbers of files and folders written."""

    cost: Cost
    files: int
    folders: int


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the rows of parts 1 and 2 whose peer is plain submitit."""
    rows = []
    for size in SIZES:
        size = size // 10 if is_quick else size
        ours, stock = submit(OURS, size), submit([sys.executable, "-c", STOCK, str(size)], size)
        for part, name, unit, mine, its in (
            (2, "", "CPU s", ours.cost.cpu_seconds, stock.cost.cpu_seconds),
            (2, ": memory", "MiB", ours.cost.peak_mib, stock.cost.peak_mib),
            (1, ": files", "", ours.files, stock.files),
            (1, ": folders", "", ours.folders, stock.folders),
        ):
            rows.append(
                Row(
                    part=part,
                    name=f"{size:,} array tasks submitted{name}",
                    measured=mine,
                    unit=unit,
                    peer=f"submitit {version('submitit')}",
                    peer_measured=its,
                )
            )
    return rows


def submit(command: list[str], size: int) -> Submitted:
    """Measure one submission with stub clients of Slurm, in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        clients, folder = Path(name, "bin"), Path(name, "here")
        clients.mkdir()
        folder.mkdir()
        for client, text in FAKE_CLIENTS.items():
            (clients / client).write_text(text)
            (clients / client).chmod(0o755)
        batch_sizes = list(range(1, size // REPEATS + 1))
        (folder / "matrix.toml").write_text(MATRIX.format(sizes=batch_sizes))
        (folder / "site.toml").write_text(SITE)
        before = count_entries(folder)
        cost = measure_command(command, folder, {"PATH": f"{clients}:{os.environ['PATH']}"})
        files, folders = count_entries(folder)
        return Submitted(cost, files - before[0], folders - before[1])


if __name__ == "__main__":
    print_rows(measure_rows)
