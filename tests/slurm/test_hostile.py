"""Signals, requeues and another user against running array tasks, on a real Slurm and without.

Twenty seconds, the same ones each time, in `make test-slurm`; ten minutes of others in
`make test-hostile`.
"""

import contextlib
import os
import random
import re
import resource
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest
from support import local_runs
from support.slurm_runs import CHECKOUT, ask, list_queue, list_valid_records, stage_spin
from support.stranger import Stranger, find_processes
from support.tasks import forbid_mpi
from support.tool import run_tool, start_tool

IN_GATE = 20
SECONDS = int(os.environ.get("DLPERF_SOAK_SECONDS", IN_GATE))
SEED = IN_GATE if SECONDS == IN_GATE else random.randrange(2**32)
REPEATS = 6
NODES = 'directives=["--nodelist=n1,n2"]'
LONGEST_STOP_SECONDS = 9.0
# a hang, on a machine with other work
ANSWER_SECONDS = 60.0
ROUND_SECONDS = 300.0
# what signals have ended is tried again so often after the last of them
CALM_ROUNDS = 5
LIMIT_KIB = 500 * 2**10
KILLED = -signal.SIGKILL
# measured, no scheduler, repeats are missing
CODES = (0, 3, 5, KILLED)


@pytest.mark.usefixtures("empty_queue")
def test_run_on_slurm_is_measured_once_whatever_users_and_signals_do(cluster, tmp_path):
    # all users may enter this folder, unlike those of pytest
    folder = cluster.disk / tmp_path.name
    for each in (cluster.disk, folder):
        each.mkdir(exist_ok=True)
        each.chmod(0o755)

    # rank 0 listens for a while, as on nodes of which one starts late
    late = folder / "late"
    late.write_text('#!/bin/sh\n[ "$SLURM_PROCID" = 0 ] || sleep 1\n')
    late.chmod(0o755)
    settings = ["ranks=slurm", NODES, f'launcher.flags=["--task-prolog={late}"]']

    def stage(name):
        run = stage_spin(folder / name, ["2n1g"], REPEATS, settings)
        forbid_mpi(run.path / "code")
        return run

    node = Path(os.environ["SLURM_TESTBED"], "run", "node-n1.pid").read_text().split()[0]
    slurmd_port = re.search(r" Port=(\d+)", ask("scontrol", "show", "node", "n1"))[1]
    stranger = Stranger(int(node), folder, [int(slurmd_port)])
    try:
        soak(stage, [stop, kill, suspend, requeue, ask_status])
    finally:
        connections, successes = stranger.stop()
    assert successes == []
    assert connections > 0
    print(f"another user connected {connections} times")


def test_local_run_is_measured_once_whatever_signals_do(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(local_runs.make_temp_dir(tmp_path)))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def stage(name):
        (tmp_path / name).mkdir()
        return local_runs.stage_local(tmp_path / name, REPEATS)

    soak(stage, [stop, kill, ask_status])


def soak(stage, acts):
    """Follow runs, one after the other, amid hostile acts; each repeat is measured once."""
    chance = random.Random(SEED)
    end = time.monotonic() + SECONDS
    done = Counter()
    before = read_most_memory()
    while time.monotonic() < end:
        run = stage(f"run{done['run']}")
        done["run"] += 1
        words = ["resume", str(run.path)]
        calm = 0
        while True:
            assert calm <= CALM_ROUNDS, run_tool(["status", str(run.path)], CHECKOUT).stdout
            calm += time.monotonic() > end
            with follow(words) as follower:
                while follower.poll() is None and time.monotonic() < end:
                    act = chance.choice(acts)
                    done[act.__name__] += act(run, chance)
                code = finish(follower)
            if code == 0:
                break
            words = ["resume" if code == KILLED else "retry", str(run.path)]
        done["repeat"] += assert_measured_once(run)
    assert read_most_memory() <= max(before, LIMIT_KIB)
    print(f"seed {SEED}, {SECONDS} s: {dict(done)}")


def read_most_memory():
    """Return the most KiB that any child of this process has used, also of earlier tests."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


@contextlib.contextmanager
def follow(words):
    follower = start_tool([*words, "--wait"], CHECKOUT)
    try:
        yield follower
    finally:
        follower.kill()


def finish(follower):
    """Return the exit code of a command, which has neither a traceback nor another end."""
    output = "".join(follower.communicate(timeout=ROUND_SECONDS))
    assert "Traceback" not in output, output
    assert follower.returncode in CODES, output
    return follower.returncode


def stop(run, chance):
    """Stop a process of the run for some seconds."""
    return send(run, chance, signal.SIGSTOP, chance.uniform(0.1, LONGEST_STOP_SECONDS))


def kill(run, chance):
    """Kill a process of the run, or the command that follows it."""
    return send(run, chance, signal.SIGKILL, chance.uniform(1, 4))


def send(run, chance, number, seconds):
    found = find_processes(str(run.path))
    if not found:
        time.sleep(0.2)
        return 0
    pid = chance.choice(found)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
    return 1


def suspend(run, chance):
    """Suspend an array task for some seconds, as an administrator."""
    return administer(
        run, chance, "suspend {}", chance.uniform(1, LONGEST_STOP_SECONDS), "resume {}"
    )


def requeue(run, chance):
    """Start an array task again, as an administrator, without Slurm's delay of two minutes."""
    return administer(run, chance, "requeue {}", 3.0, "update jobid={} starttime=now+3")


def administer(run, chance, words, seconds, then):
    running = [job for job, state in list_queue(run).items() if state == "RUNNING"]
    if not running:
        time.sleep(0.2)
        return 0
    job = chance.choice(running)
    done = subprocess.run(["scontrol", *words.format(job).split()], capture_output=True)
    time.sleep(seconds)
    subprocess.run(["scontrol", *then.format(job).split()], capture_output=True)
    return done.returncode == 0


def ask_status(run, chance):
    process = start_tool(["status", str(run.path)], CHECKOUT)
    output = "".join(process.communicate(timeout=ANSWER_SECONDS))
    assert "Traceback" not in output, output
    assert process.returncode in CODES, output
    return 1


def assert_measured_once(run):
    """Assert that each repeat has one valid record; return their number."""
    sound = list_valid_records(run)
    assert len(sound) == len(set(sound)) == REPEATS
    return len(sound)
