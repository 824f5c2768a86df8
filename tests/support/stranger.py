"""Another user of a machine, who reads, writes, ends and connects to whatever is not theirs."""

import ctypes
import itertools
import multiprocessing
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from dlperf_slurm.worker.rendezvous.connections import PORTS

NOBODY = 65534
LISTENING = "0A"
MAX_CONNECTIONS = 400
PAUSE_SECONDS = 0.05
ROUNDS_PER_LOOK = 20
# what a silent client, a slow one, a browser and a fuzzer send first
GREETINGS = (b"", b"x", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096))
FILES = ("", "manifest.json", "cases.jsonl", "private.env", "submit.lock", "code", "results")
# its modules are there already, which the user could not read in the folders of root
forked = multiprocessing.get_context("fork")


class Stranger:
    """A process of user `nobody`, started by root, in the network of the process `pid`.

    It attacks what belongs to `folder`, until `stop()`, and spares ports that are not of ranks.
    """

    def __init__(self, pid: int, folder: Path, spared_ports: Collection[int] = ()) -> None:
        self.receiver, sender = forked.Pipe(duplex=False)
        self.end = forked.Event()
        arguments = (pid, folder, spared_ports, self.end, sender)
        self.process = forked.Process(target=attack, args=arguments)
        self.process.start()

    def stop(self) -> tuple[int, list[str]]:
        """End the process; return how often it connected, and what it achieved."""
        self.end.set()
        answer: tuple[int, list[str]] = self.receiver.recv()
        self.process.join()
        return answer


def attack(pid, folder, spared_ports, end, sender):
    with Path(f"/proc/{pid}/ns/net").open("rb") as namespace:
        assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    successes: set[str] = set()
    connections: list[socket.socket] = []
    count = 0
    for round_number in itertools.count():
        if end.wait(PAUSE_SECONDS):
            break
        # takes seconds on a busy machine, longer than ranks listen
        if round_number % ROUNDS_PER_LOOK == 0:
            successes.update(open_files(folder), reach_processes(folder))
        for address in set(list_listening()):
            if address[1] in spared_ports:
                continue
            for greeting in GREETINGS * 5:
                with suppress(OSError):
                    # create_connection() would import a codec, from a folder of root
                    connections.append(socket.socket())
                    connections[-1].settimeout(PAUSE_SECONDS)
                    connections[-1].connect(address)
                    connections[-1].send(greeting)
                    count += 1
        for connection in connections[:-MAX_CONNECTIONS]:
            connection.close()
        connections = connections[-MAX_CONNECTIONS:]
        for connection in connections:
            with suppress(OSError):
                connection.send(b"x", socket.MSG_DONTWAIT)
    sender.send((count, sorted(successes)))


def open_files(folder: Path) -> Iterator[str]:
    """Yield the files of run directories below a folder that this user can open or make."""
    for run in folder.glob("**/20*-*-*"):
        for name in FILES:
            with suppress(OSError):
                os.close(os.open(run / name, os.O_RDONLY))
                yield f"read {run / name}"
        with suppress(OSError):
            (run / "results").touch()
            yield f"write {run}"


def reach_processes(folder: Path) -> Iterator[str]:
    """Yield the processes of a run that this user can signal, or whose variables can be read."""
    for pid in find_processes(str(folder)):
        with suppress(OSError):
            os.kill(pid, 0)
            yield f"signal {pid}"
        with suppress(OSError):
            Path(f"/proc/{pid}/environ").read_bytes()
            yield f"environment of {pid}"


def list_listening() -> list[tuple[str, int]]:
    """List the addresses in this network at which ranks without MPI may listen."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1].split(":") for line in lines if line.split()[3] == LISTENING]
    pairs = [
        (socket.inet_ntoa(bytes.fromhex(host)[::-1]), int(port, 16)) for host, port in listening
    ]
    return [pair for pair in pairs if pair[1] in PORTS]


def find_processes(word: str, program: str = "") -> list[int]:
    """Return the processes with a word in their command line, on all nodes of a test cluster."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().decode(errors="replace")
            if word in line and program in ("", Path(line.partition("\0")[0]).name):
                found.append(int(path.parent.name))
    return found
