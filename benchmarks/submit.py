"""Submitting array jobs: this tool over stock submitit, in seconds, files and memory, as ratios.

Both submit the same number of array tasks to an `sbatch` that only prints a job id, each in a
fresh process: from the matrix to the journaled job id here, `map_array` of a shell command there.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SIZES = (100, 1000, 10_000)

FAKE_CLIENTS = {
    "sbatch": "#!/bin/sh\necho Submitted batch job $$\n",
    "srun": "#!/bin/sh\n",
    "scontrol": "#!/bin/sh\necho 'MaxArraySize = 1001'\n",
}

MEASURED = """
import json, resource, sys, time
start = time.perf_counter()
{body}
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({{"seconds": seconds, "peak_mib": peak}}))
"""

OURS = """
import contextlib, io
from dlperf_slurm.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(["submit", "matrix.toml", "--site", "site.toml"])
assert code == 0, code
"""

# submitit has no chunking of its own: one array per 1001 tasks, as the cluster allows
STOCK = """
import submitit
executor = submitit.SlurmExecutor("runs")
executor.update_parameters(time=30, nodes=1, ntasks_per_node=1)
command = submitit.helpers.CommandFunction(["true"])
tasks = list(range({size}))
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


def measure(body: str, folder: Path) -> dict[str, float]:
    """Seconds and peak MiB inside a fresh process in `folder`, and the files it left there."""
    clients = folder.parent / "bin"
    environment = {**os.environ, "PATH": f"{clients}:{os.environ['PATH']}"}
    before = sum(1 for path in folder.rglob("*") if path.is_file())
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", MEASURED.format(body=body)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    result["files"] = sum(1 for path in folder.rglob("*") if path.is_file()) - before
    return result


def main() -> None:
    """Print a line per size and figure: ours, stock, and their ratio."""
    for size in SIZES:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "bin").mkdir()
            for client, text in FAKE_CLIENTS.items():
                (root / "bin" / client).write_text(text)
                (root / "bin" / client).chmod(0o755)
            ours, stock = root / "ours", root / "stock"
            ours.mkdir()
            stock.mkdir()
            batch_sizes = list(range(1, size // 10 + 1))
            (ours / "matrix.toml").write_text(MATRIX.format(sizes=batch_sizes))
            (ours / "site.toml").write_text(SITE)
            figures = measure(OURS, ours), measure(STOCK.format(size=size), stock)
        for key in ("seconds", "peak_mib", "files"):
            a, b = (figure[key] for figure in figures)
            print(
                f"{size:6d} array tasks, {key:9s} ours {a:9.2f}  stock {b:9.2f}  ratio {a / b:.2f}"
            )


if __name__ == "__main__":
    main()
