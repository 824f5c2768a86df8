"""RankInfo -> a framework's parameter servers, started and monitored by the ranks."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.ranks import find_free_port

END_SECONDS = 10
# 0: all ranks have left; SIGTERM and SIGINT: the whole job is being ended
EXPECTED_EXIT_CODES = (0, -signal.SIGTERM, -signal.SIGINT)


class ServerError(RuntimeError):
    """A parameter server that ended before the ranks that it serves."""


# called before a failed server ends this rank; set by the worker's entry point, which knows where
# to write the failure
report_early_end: Optional[Callable[[ServerError], None]] = None


class WatchedServers:
    """Server processes started by this rank; if one fails, this process exits at once.

    For frameworks that wait for their servers in C without a timeout, where no Python exception
    could reach the main thread.
    """

    def __init__(self, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._processes = processes
        self._may_end = threading.Event()
        for process in processes:
            threading.Thread(target=self._watch, args=(process,), daemon=True).start()

    def release(self) -> None:
        """Accept any exit code from now on; call before the servers are asked to end."""
        self._may_end.set()

    def end(self) -> None:
        """Wait for the servers to end, and kill those that do not within END_SECONDS."""
        for process in self._processes:
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait for a server; report and end this process if it fails before `release` was called.

        Exit codes in EXPECTED_EXIT_CODES are no failure: all ranks have left, or the job is ended.
        """
        exit_code = process.wait()
        if exit_code in EXPECTED_EXIT_CODES or self._may_end.is_set():
            return
        error = ServerError(f"a parameter server of this rank ended with exit code {exit_code}")
        try:
            print(error, file=sys.stderr, flush=True)
            if report_early_end is not None:
                report_early_end(error)
        finally:
            # sys.exit would end this thread only; the launcher then ends the other ranks
            os._exit(1)


class Cluster(NamedTuple):
    """Addresses of servers and ranks; `own_server` is the server that this rank starts, or ""."""

    servers: Tuple[str, ...]
    ranks: Tuple[str, ...]
    rank: int
    own_server: str

    def list_jobs(self) -> Dict[str, List[str]]:
        """Return TensorFlow's ClusterSpec: {"ps": addresses of servers, "worker": of ranks}."""
        return {"ps": list(self.servers), "worker": list(self.ranks)}


def list_addresses(rank_info: RankInfo) -> Cluster:
    """Return the addresses of the parameter servers and ranks of a job.

    They are those that the ranks have agreed on, or new ones on this host for a single rank.
    """
    if rank_info.world_size == 1:
        server, rank = (f"127.0.0.1:{find_free_port(offset, 2)}" for offset in range(2))
        return Cluster((server,), (rank,), 0, server)
    addresses = rank_info.server_addresses
    return Cluster(
        servers=tuple(address for address in addresses if address),
        ranks=rank_info.rank_addresses,
        rank=rank_info.rank,
        own_server=addresses[rank_info.rank],
    )


def start_server(module: str, cluster: Cluster, threads: int) -> None:
    """Start this rank's parameter server, a Python module, if `cluster` has one for the rank.

    The command is `python -m MODULE PARENT_ID TASK THREADS CLUSTER`. The server must end with this
    process, which ends only after all ranks, in MPI_Finalize. Returns when the server listens;
    raises RuntimeError if it ends before that.
    """
    if not cluster.own_server:
        return
    task = cluster.servers.index(cluster.own_server)
    arguments = [os.getpid(), task, threads, json.dumps(cluster.list_jobs())]
    process = subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        # a server needs no GPU, but the framework would reserve GPU memory
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
    )
    host, _, port = cluster.own_server.rpartition(":")
    while not is_listening(host, int(port)):
        if process.poll() is not None:
            raise RuntimeError(f"a parameter server ended with exit code {process.returncode}")
        time.sleep(0.1)


def is_listening(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
