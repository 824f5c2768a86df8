"""In a CUDA environment, with stub libraries: combinations on stdin -> the GPU calls of each step.

    python observe.py FRAMEWORK

Each line of stdin is a combination as JSON, and each line of stdout its answer: {"ranks": [...]},
or {"error": ...} with the end of its ranks' output. Every rank is forked from a process that has
only imported the framework.
"""

import ctypes
import json
import multiprocessing
import os
import socket
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from dlperf_slurm.worker.data_sources import open_batches
from dlperf_slurm.worker.frameworks import RankInfo, start_session
from dlperf_slurm.worker.measure import measure_steps
from dlperf_slurm.worker.progress import MEASURED, Position
from rehearsal.combinations import Combination, make_case

LIMIT_SECONDS = 180.0
SAID_AT_MOST = 3000
# these also import the framework, once for all ranks
FAULTS = {"pytorch": "rehearsal.faults", "tensorflow2": "rehearsal.tensorflow_faults"}


class Watched(Position):
    """A position that starts a new interval of the trace after each measured step."""

    def __init__(self, trace):
        self._trace = trace
        super().__init__()

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        # 0 is set at the start of a phase, a step's number at its end
        if name == "step" and value and self.phase == MEASURED:
            self._trace.rehearsal_next_interval()


def main():
    faults = import_module(FAULTS[sys.argv[1]])
    context = multiprocessing.get_context("fork")
    for line in sys.stdin:
        combination = Combination(**json.loads(line))
        with tempfile.TemporaryDirectory() as folder:
            name = combination.fault.replace(" ", "_")
            break_adapter = getattr(faults, name) if name else None
            answer = observe(context, combination, break_adapter, Path(folder))
        print(json.dumps(answer), flush=True)


def observe(context, combination, break_adapter, folder):
    """Run one combination in a process per rank, and return the answer."""
    barrier = context.Barrier(combination.ranks, timeout=LIMIT_SECONDS)
    port = find_free_port()
    processes = [
        context.Process(
            target=run_rank,
            args=(combination, break_adapter, rank, port, barrier, folder),
        )
        for rank in range(combination.ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(LIMIT_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
    failed = [rank for rank, process in enumerate(processes) if process.exitcode != 0]
    if failed:
        said = (folder / f"rank-{failed[0]}.log").read_text(errors="replace")[-SAID_AT_MOST:]
        code = processes[failed[0]].exitcode
        return {"error": f"rank {failed[0]} ended with {code}: {said.strip()}"}
    return {"ranks": [read_rank(folder, rank) for rank in range(combination.ranks)]}


def find_free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_rank(combination, break_adapter, rank, port, barrier, folder):
    with (folder / f"rank-{rank}.log").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        if break_adapter:
            break_adapter()
        watch_rank(combination, rank, port, barrier, folder)
    except BaseException:
        # so that the other ranks do not wait
        barrier.abort()
        raise


def watch_rank(combination, rank, port, barrier, folder):
    """Run one rank's steps, and write its trace and its facts into the folder."""
    # the stubs are preloaded
    trace = ctypes.CDLL(None)
    case = make_case(combination)
    rank_info = RankInfo(rank, rank, case.world_size, "here", "127.0.0.1", port)
    session = start_session(case, rank_info)
    measure_steps(
        session,
        barrier.wait,
        case,
        open_batches(case, rank_info, session),
        on_window_start=trace.rehearsal_next_interval,
        position=Watched(trace),
    )
    told = {"parameter_count": session.parameter_count, "device_name": session.device_name}
    (folder / f"rank-{rank}.json").write_text(json.dumps(told))
    trace.rehearsal_write(str(folder / f"rank-{rank}.trace").encode())
    barrier.wait()
    session.close()


def read_rank(folder, rank):
    """Read what a rank has written: {entry: count} of each interval, from before the window."""
    told = json.loads((folder / f"rank-{rank}.json").read_text())
    intervals = {}
    for line in (folder / f"rank-{rank}.trace").read_text().splitlines():
        interval, count, entry = line.split("\t")
        intervals.setdefault(int(interval), {})[entry] = int(count)
    return {**told, "intervals": [intervals.get(i, {}) for i in range(max(intervals) + 1)]}


if __name__ == "__main__":
    main()
