"""Where servers of a framework stand, and that they start or say why not; no framework needed."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from support import sessions

from dlperf_slurm.worker.servers import WatchedServers, is_listening, list_addresses, start_server

# two nodes, whose ranks take turns
PLACEMENT = replace(
    sessions.ALONE,
    world_size=4,
    rank_addresses=("a:1", "b:1", "a:2", "b:2"),
    server_addresses=("a:3", "b:3", "", ""),
)
# as a framework's server, but for 30 seconds
SERVER = """
import json, socket, sys, time
from dlperf_slurm.worker.processes import end_with_parent
end_with_parent(int(sys.argv[1]))
address = json.loads(sys.argv[4])["ps"][int(sys.argv[2])]
server = socket.socket()
server.bind(("127.0.0.1", int(address.split(":")[1])))
server.listen(8)
time.sleep(30)
"""
STARTER = """
import sys
from dlperf_slurm.worker.servers import list_addresses, start_server
from support import sessions
cluster = list_addresses(sessions.ALONE)
start_server("small_server", cluster, 1)
print(cluster.own_server)
"""
# a rank whose servers are these programs
RANK = """
import subprocess, sys, time
from dlperf_slurm.worker.servers import WatchedServers
commands = [[sys.executable, "-c", program] for program in sys.argv[1:]]
servers = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands]
watched = WatchedServers(servers)
"""
# as long as the rank lives
SERVE = "input()"
KILL = "import os, signal; os.kill(os.getpid(), signal.{})"


def test_each_node_has_one_server_and_its_first_rank_starts_it():
    clusters = [list_addresses(replace(PLACEMENT, rank=rank)) for rank in range(4)]
    assert {cluster.servers for cluster in clusters} == {("a:3", "b:3")}
    assert [cluster.own_server for cluster in clusters] == ["a:3", "b:3", "", ""]
    assert [cluster.rank for cluster in clusters] == [0, 1, 2, 3]
    alone = list_addresses(replace(sessions.ALONE, rank=3))
    assert (alone.rank, alone.own_server) == (0, alone.servers[0])
    assert len({*alone.servers, *alone.ranks}) == 2
    assert clusters[3].list_jobs() == {"ps": ["a:3", "b:3"], "worker": ["a:1", "b:1", "a:2", "b:2"]}


def test_server_that_ends_instead_of_serving_is_an_error():
    with pytest.raises(RuntimeError, match="server ended with exit code 1"):
        start_server("dlperf_slurm.no_such_module", list_addresses(sessions.ALONE), 1)


def test_server_listens_when_it_is_started_and_ends_with_its_rank(tmp_path):
    (tmp_path / "small_server.py").write_text(SERVER)
    paths = [str(tmp_path), str(sessions.CHECKOUT), str(sessions.CHECKOUT / "tests")]
    rank = subprocess.run(
        [sys.executable, "-c", STARTER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    host, _, port = rank.stdout.strip().rpartition(":")
    assert host == "127.0.0.1"
    # killed by the kernel, which may take a moment
    assert any(not is_listening(host, int(port)) for _ in range(10000))


def run_watching(rank, *programs):
    return subprocess.run(
        [sys.executable, "-c", RANK + rank, *programs],
        env={**os.environ, "PYTHONPATH": str(sessions.CHECKOUT)},
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("program", "code"), [("exit(3)", 3), (KILL.format("SIGKILL"), -9)])
def test_rank_that_waits_in_c_ends_with_its_server(program, code):
    rank = run_watching("time.sleep(1000)", SERVE, program)
    assert rank.returncode == 1
    assert f"ended with exit code {code}" in rank.stderr


# Python 3.7 makes an exit code of its own of SIGINT
INTERRUPT = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); " + KILL.format("SIGINT")


GO_ON = "servers[0].wait(); time.sleep(0.5)"


@pytest.mark.parametrize(
    ("rank", "program"),
    [
        # it was told to end, or was released
        (GO_ON, "exit(0)"),
        (GO_ON, KILL.format("SIGTERM")),
        (GO_ON, INTERRUPT),
        ("watched.release(); servers[0].kill(); watched.end()", SERVE),
    ],
)
def test_rank_goes_on_when_its_server_may_end(rank, program):
    done = run_watching(rank, program)
    assert (done.returncode, "ended with exit code" in done.stderr) == (0, False)


def test_server_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr("dlperf_slurm.worker.servers.END_SECONDS", 0.1)
    server = subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE)
    watched = WatchedServers([server])
    watched.release()
    watched.end()
    assert server.returncode == -9
