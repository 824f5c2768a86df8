"""Gather the step times of all ranks on rank 0, as an array and, as before, as pickled lists.

Runs in the environment of PyTorch, which has mpi4py and mpirun, on one machine. There are more
ranks than cores, so that the figures are CPU seconds of all ranks and memory of rank 0; no network
is timed.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

from rows import Row, print_rows

from dlperf_slurm.config.folders import find_managed_environment

CHECKOUT = Path(__file__).resolve().parents[1]
STEPS = 1_000
GATHERED = 20
RANKS = (2, 8, 32, 64)
LIMIT_SECONDS = 300.0
# as in site_configs/local.toml: root may start ranks, and a waiting rank yields its core
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
WHY_SLOWER = (
    "sizes are told to all ranks before, so that all refuse alike, and ranks without a core of "
    "their own look again and again for what they wait for: below 1 ms of each, once per record"
)
ARRAY, LISTS = "array", "lists"


def measure_rows(is_quick: bool) -> list[Row]:
    """Return the extra memory of rank 0, and the CPU time of one gathering, by number of ranks."""
    rows = []
    for ranks in RANKS[:2] if is_quick else RANKS:
        ours, before = run_ranks(ranks, ARRAY), run_ranks(ranks, LISTS)
        named = f"{STEPS:,} step times of {ranks} ranks"
        problem = "" if ours and before else "ranks did not start in the environment of PyTorch"
        for name, key, unit in (
            (f"{named}: memory on rank 0 over that of the figures themselves", "memory_ratio", "x"),
            (f"{named}: CPU time of all ranks for one gathering", "cpu_milliseconds", "ms"),
        ):
            rows.append(
                Row(
                    part=7,
                    name=name,
                    measured=ours[key] if ours else None,
                    unit=unit,
                    peer="pickled lists",
                    peer_measured=before[key] if before else None,
                    target_ratio=1.0,
                    why_missed=WHY_SLOWER,
                    problem=problem,
                )
            )
    return rows


def run_ranks(ranks: int, kind: str) -> Optional[dict[str, float]]:
    """Return the figures that rank 0 prints, or None if the ranks cannot be started."""
    programs = find_managed_environment("pytorch") / "bin"
    if not (programs / "mpirun").exists():
        return None
    command = [str(programs / "mpirun"), "-n", str(ranks), "--map-by", ":OVERSUBSCRIBE"]
    command += ["--bind-to", "none", str(programs / "python"), __file__, kind]
    env = {**os.environ, **SETTINGS, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, timeout=LIMIT_SECONDS)
    if done.returncode != 0:
        return None
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def gather_as(kind: str) -> None:
    """Run one of the ranks: gather several times, and print the cost on rank 0."""
    import numpy

    from dlperf_slurm.worker.rendezvous.communicators import MpiWorld

    world = MpiWorld()
    values = [1e-3 * step for step in range(STEPS)]

    def gather() -> Any:
        if kind == ARRAY:
            return world.gather_rows(values)
        lists = world.gather(values)
        return numpy.array(lists) if world.rank == 0 else None

    # warm-up: the first gathering also allocates and connects
    gather()
    world.barrier()
    peak_bytes = trace_peak(gather)
    world.barrier()
    cpu_start = time.process_time()
    for _ in range(GATHERED):
        gather()
    seconds = world.gather(time.process_time() - cpu_start)
    if world.rank == 0:
        told = {
            "memory_ratio": peak_bytes / (8 * STEPS * world.size),
            "cpu_milliseconds": 1000 * sum(seconds) / GATHERED,
            "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        print(json.dumps(told), flush=True)


def trace_peak(work: Any) -> int:
    """Return the peak of the bytes that Python and NumPy allocate while `work` runs."""
    import tracemalloc

    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


if __name__ == "__main__":
    if sys.argv[1:] in ([ARRAY], [LISTS]):
        gather_as(sys.argv[1])
    else:
        print_rows(measure_rows)
