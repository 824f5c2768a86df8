"""Two clusters with one slurmdbd; the far one is set up in all ways that the usual one is not.

The far one has no job arrays, whole nodes, no default memory, a plug-in that chooses the partition,
a prolog that changes a node's features, a slow epilog, and tokens for its clients. Its jobs have
the ids of jobs that are held here.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from support.slurm_runs import (
    CHECKOUT,
    NOTHING_TO_RETRY,
    ask,
    build_quick_submit,
    find_array_job,
    is_there,
    stage_quick,
    submit,
    write_wrapper,
)
from support.small_disk import bind_read_only
from support.tool import DEADLINE_SECONDS, await_that, find_states, run_tool, start_tool

from dlperf_slurm.jobs.journal import JOURNAL_FILE, SUBMITTED
from dlperf_slurm.jobs.run_directory import make_job_name

SCHEDULER_ERROR = 3
HELD_JOBS = 60
# in Slurm 22.05 no srun gets a step of a job with GPUs where select/linear gives out whole nodes
SETTINGS = ("arrays=false", "gpu_request=none")
CHOOSE_PARTITION = """\
function slurm_job_submit(job, partitions, uid)
  if job.partition == nil then job.partition = "low" end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def far(cluster):
    """Start the far cluster; return its name and the configuration file of its clients."""
    here = Path(os.environ["SLURM_TESTBED"], "etc")
    testbed = tempfile.mkdtemp(prefix="dlperf-far-", dir="/tmp")
    etc = Path(testbed, "etc")
    etc.mkdir()
    Path(testbed, "lock").touch()
    shutil.copy(here / "munge.key", etc)
    (etc / "job_submit.lua").write_text(CHOOSE_PARTITION, encoding="utf-8")
    # the first repeat is COMPLETING when the second one has ended
    write_script(etc / "epilog", "sleep 5")
    change = f"SLURM_CONF={etc / 'slurm.conf'} scontrol update nodename=$SLURMD_NODENAME"
    write_script(etc / "prolog", f"{change} availablefeatures=busy || true")
    key = etc / "jwt.key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    tokens = ["AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={key}"]
    held = [ask("sbatch", "--parsable", "--hold", "--wrap=true") for _ in range(HELD_JOBS)]
    lines = [
        *(line for line in read(here / "slurm.conf") if line.startswith("AccountingStorage")),
        *tokens,
        f"FirstJobId={held[0].strip()}",
        "MaxArraySize=0",
        "JobSubmitPlugins=lua",
        "SelectType=select/linear",
        "SelectTypeParameters=CR_Memory",
        "DefMemPerCPU=0",
        f"Prolog={etc / 'prolog'}",
        f"Epilog={etc / 'epilog'}",
    ]
    slurmdbd = here / "slurmdbd.conf"
    # for a client of another user
    here.parent.chmod(0o755)
    before = read(slurmdbd)
    try:
        restart_slurmdbd(cluster, slurmdbd, [*before, *tokens, "MaxQueryTimeRange=0-00:10:00"])
        options = [word for line in lines for word in ("--conf", line)]
        call_cluster(cluster, testbed, "up", "--nodes", "2", *options)
        (name,) = (line for line in read(etc / "slurm.conf") if line.startswith("ClusterName="))
        yield name.partition("=")[2], str(etc / "slurm.conf")
    finally:
        call_cluster(cluster, testbed, "down", "--purge")
        ask("scancel", "--user=root")
        restart_slurmdbd(cluster, slurmdbd, before)


def read(path):
    return path.read_text(encoding="utf-8").splitlines()


def write_script(path, lines):
    path.write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
    path.chmod(0o755)


def call_cluster(cluster, testbed, *words):
    environment = {**os.environ, "SLURM_TESTBED": testbed}
    done = subprocess.run([cluster.program, *words], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def restart_slurmdbd(cluster, path, lines):
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    pid = int(read(path.parents[1] / "run" / "slurmdbd.pid")[0].split()[0])
    os.kill(pid, signal.SIGTERM)
    await_that(lambda: not is_there(pid), "slurmdbd has ended")
    cluster.call("up")


def count_held():
    return len(ask("squeue", "-h", "--name=wrap", "--states=PENDING", "-o%i").split())


def test_what_sbatch_takes_runs_on_a_cluster_without_arrays_and_a_default_partition(far, tmp_path):
    _, config = far
    ask_far(config, "scontrol", "update", "partitionname=main", "default=no")
    settings = [*SETTINGS, "directives=['--exclusive=user']"]
    command = build_quick_submit(tmp_path, *settings, repeats=2)
    home = make_folder(tmp_path, "home")
    folders = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
    with bind_read_only(home):
        done = run_tool([*command, "--wait"], CHECKOUT, {**folders, "SLURM_CONF": config})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2/2 done: 2 COMPLETED" in done.stdout
    assert "busy" in ask_far(config, "sinfo", "-h", "-o%f")


def ask_far(config, *words):
    environment = {**os.environ, "SLURM_CONF": config}
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("token_is", ["valid", "altered", "expired"])
def test_clients_authenticate_by_token(far, tmp_path, token_is):
    _, config = far
    lifespan = ["lifespan=1"] if token_is == "expired" else []
    token = ask_far(config, "scontrol", "token", *lifespan).strip().partition("=")[2]
    if token_is == "altered":
        token = token[:-9] + "A" * 9
    elif token_is == "expired":
        time.sleep(2.5)
    environment = {"SLURM_CONF": config, "SLURM_JWT": token}
    done = run_tool(build_quick_submit(tmp_path, *SETTINGS), CHECKOUT, environment)
    is_valid = token_is == "valid"
    assert done.returncode == (0 if is_valid else SCHEDULER_ERROR), done.stdout + done.stderr
    assert is_valid or "`scontrol token" in done.stderr
    assert ("SLURM_JWT expired at" in done.stderr) is (token_is == "expired")


@pytest.mark.parametrize("by", ["clusters of the site", "SLURM_CLUSTERS"])
def test_jobs_on_the_other_cluster_are_followed_and_cancelled_there_alone(far, tmp_path, by):
    name, _ = far
    is_site = by == "clusters of the site"
    settings = [*SETTINGS, "partition=low", *([f"clusters={name}"] if is_site else [])]
    environment = {} if is_site else {"SLURM_CLUSTERS": name}
    command = build_quick_submit(make_folder(tmp_path, "measured"), *settings)
    done = run_tool([*command, "--wait"], CHECKOUT, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    settings.append("directives=['--hold']")
    command = build_quick_submit(make_folder(tmp_path, "cancelled"), *settings)
    done = run_tool(command, CHECKOUT, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (manifest,) = tmp_path.glob("cancelled/results/*/manifest.json")
    cancelled = run_tool(["cancel", str(manifest.parent)], CHECKOUT)
    assert cancelled.returncode == 0, cancelled.stderr
    assert (list_far(name), count_held()) == ([], HELD_JOBS)


def make_folder(parent, name):
    folder = parent / name
    folder.mkdir()
    return folder


def list_far(name):
    lines = ask("squeue", "-h", "-M", name, "--states=PENDING,RUNNING", "-o%i").splitlines()
    return [line for line in lines if not line.startswith("CLUSTER:")]


def test_doctor_cancels_its_probe_on_the_other_cluster_alone(far, tmp_path):
    name, _ = far
    settings = [*SETTINGS, "partition=low", f"clusters={name}", "directives=['--hold']"]
    words = build_quick_submit(tmp_path, *settings)[1:]
    done = run_tool(["doctor", *words, "--max-wait", "0.05"], CHECKOUT)
    assert f"on cluster {name}" in done.stdout, done.stdout + done.stderr
    assert "was cancelled" in done.stdout
    assert (list_far(name), count_held()) == ([], HELD_JOBS)


def test_job_that_only_accounting_knows_is_found_where_it_refuses_long_ranges(far, tmp_path):
    """Interrupt a submission whose job was cancelled before it started, and is forgotten."""
    run = stage_quick(tmp_path, ["directives=['--licenses=machine:1']"], repeats=1)
    blocker = ask("sbatch", "--parsable", "--licenses=machine:1", "--wrap=sleep 600", "-o/dev/null")
    await_that(lambda: ask("squeue", "-h", "-tR", f"-j{blocker.strip()}"), "it has the license")
    assert submit(run).returncode == 0
    job = find_array_job(run)
    # accounting lists no job for a range of time that the scheduler never considered
    await_that(lambda: "Licenses" in ask("squeue", "-h", "-o%r", f"-j{job}"), "it is considered")
    assert run_tool(["cancel", str(run.path)], CHECKOUT).returncode == 0
    ask("scancel", blocker.strip())
    journal = run.path / JOURNAL_FILE
    kept = [line for line in read(journal) if f'"{SUBMITTED}"' not in line]
    journal.write_text("\n".join([*kept, ""]), encoding="utf-8")
    write_wrapper(tmp_path / "bin", "squeue", 'exec "$real" "$@" --name=none')
    errors = tmp_path / "errors"
    # administrators may ask for any range
    asked = (
        f'setpriv --reuid=65534 --regid=65534 --clear-groups "$real" -a "$@" 2>{errors}; code=$?'
    )
    told = f"tee -a {errors}s <{errors} >&2; exit $code"
    path = write_wrapper(tmp_path / "bin", "sacct", f"{asked}; {told}")
    # by name and time, as the tool asks, which takes longer than by id
    known = ["sacct", "-nX", f"--name={make_job_name(run.run_id, '1n1g')}", "--format=State"]
    await_that(lambda: "CANCELLED" in ask(*known, "--starttime=now-1hours"), "it is accounted for")
    done = submit(run, PATH=path)
    assert f"array job {job} was already" in done.stdout, done.stdout + done.stderr
    assert "Too wide of a date range" in Path(f"{errors}s").read_text()


def test_job_that_a_sibling_of_the_federation_starts_is_followed_there(far, tmp_path):
    name, _ = far
    here = ask("scontrol", "show", "config").partition("ClusterName")[2].split()[1]
    ask("sacctmgr", "-i", "add", "federation", "both", f"clusters={here},{name}")
    nodes = "nodename=n[1-4]"
    try:
        await_that(lambda: "Synced:Yes" in ask("scontrol", "show", "federation"), "they are one")
        ask("scontrol", "update", nodes, "state=drain", "reason=test")
        run = stage_quick(tmp_path, [*SETTINGS, "partition=low"], repeats=1, seconds=8.0)
        submit(run)
        follower = start_tool(["wait", str(run.path)], CHECKOUT)
        await_that(lambda: "REVOKED" in ask("squeue", "-h", "--states=all", "-o%T"), "it is there")
        output, errors = follower.communicate(timeout=DEADLINE_SECONDS)
    finally:
        ask("scontrol", "update", nodes, "state=resume")
        ask("sacctmgr", "-i", "delete", "federation", "both")
    assert follower.returncode == 0, output + errors
    assert set(find_states(run).values()) == {"COMPLETED"}
    assert NOTHING_TO_RETRY in run_tool(["retry", str(run.path)], CHECKOUT).stdout
