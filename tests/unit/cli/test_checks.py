"""`doctor` and the quick half of it in `submit`, before recorded clients of Slurm."""

import base64
import json
import os
import re
from pathlib import Path

import pytest
from builders import SMALL_MATRIX, write_matrix
from builders import write_program as put
from slurm_clients import put_clients

from dlperf_slurm.cli import main
from dlperf_slurm.config.folders import find_managed_environment, find_user_name

pytestmark = pytest.mark.not_in_check

SLURM = ("matrix.toml", "--site", "slurm-cpu")
# it takes each script, and each job
NOTE_SCRIPT = 'for script; do :; done; echo "$script" > "${0%/*}/script"'
SBATCH = f'case "$*" in *--test-only*) exit 0 ;; esac; {NOTE_SCRIPT}; echo 17'
# a node that writes what ranks would into the folder that the script names
RANKS = """\
case "$*" in *--test-only*) exit 0 ;; esac
NOTE
run_dir=$(/bin/sed -n "s/^run_dir=//p" "$script" | /usr/bin/tr -d "'")
for rank in 0 1; do
  folder=$(echo "$run_dir"/cases/*/r1/a1)
  /bin/mkdir -p "$folder/s0"
  printf 'ANSWER' "$rank" "$rank" > "$folder/s0/probe-n$rank-1.json"
done
echo 17""".replace("NOTE", NOTE_SCRIPT)


def show_probe(state: str) -> str:
    """Shell commands that print the queue's row of the job of the script that sbatch was given."""
    heading = "JOBID|STATE|NODELIST|REASON|NAME|UID|COMMAND"
    row = f"17_0|{state}|n[0-1]|Priority|probe|0|$script"
    shown = f'read -r script < "${{0%/*}}/script"; echo "{heading}"; echo "{row}"'
    return shown.replace("|", "\x1f")


@pytest.fixture
def matrix(bin_dir):
    python = find_managed_environment("pytorch") / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    write_matrix(SMALL_MATRIX)
    put_clients(bin_dir, "22.05", SBATCH)
    return bin_dir


def answer(**changes) -> str:
    values = {"cores": [0, 1], "world_size": 2, "mpi": "Open MPI", "version": "2", "is_done": True}
    return '{"host": "n%d", "rank": %d, ' + json.dumps({**values, **changes})[1:]


def test_sound_chain_is_told_line_by_line(matrix, capsys):
    put(matrix, "sbatch", RANKS.replace("ANSWER", answer()))
    put(matrix, "squeue", show_probe("COMPLETED"))
    assert main(["doctor", *SLURM]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = ["environment", "run directory", "limits", "sbatch --test-only", "run directory"]
    kept = [line for line in lines if line.startswith("ok")]
    assert [line[10:].partition(":")[0] for line in kept] == [*starts, "ranks"]
    assert lines[-1] == "All checks passed. Next: dlperf-slurm submit matrix.toml --site slurm-cpu"
    # nothing is left of the probe, nor of the folder that was made for it
    assert not Path("results").exists()


def test_parity_names_each_missing_environment_before_it_starts(bin_dir, capsys):
    assert main(["parity", "jax", "paddle"]) == 4
    err = capsys.readouterr().err
    assert [name for name in ("jax", "paddle") if f"env create {name}" not in err] == []
    assert not Path("results").exists()


def test_job_that_leaves_no_file_says_that_nodes_do_not_see_the_folder(matrix, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.checks.doctor.FILES_SECONDS", 0.0)
    put(matrix, "squeue", show_probe("FAILED"))
    assert main(["doctor", *SLURM]) == 1
    printed = capsys.readouterr()
    assert "run directory: pytorch: " in printed.out
    assert "checks: 1 failed; " in printed.err


def test_job_that_does_not_start_is_cancelled_and_undecided(matrix, home, capsys):
    state = f"PENDING; [ ! -e {home}/cancelled ] || state=CANCELLED"
    put(matrix, "squeue", f"state={state}; {show_probe('$state')}")
    put(matrix, "scancel", f'echo "$*" > {home}/cancelled')
    assert main(["doctor", *SLURM, "--max-wait", "0"]) == 1
    assert "undecided probe job: pytorch: " in capsys.readouterr().out
    words = (home / "cancelled").read_text(encoding="utf-8").split()
    # no other job of that number
    assert words[0].startswith("--name=")
    assert words[0].endswith(".probe-pytorch")
    assert words[1:] == ["17"]


@pytest.mark.parametrize("by", ["site", "shell"])
def test_probe_is_asked_for_and_cancelled_on_the_cluster_that_it_went_to(
    matrix, home, capsys, monkeypatch, by
):
    put(matrix, "scancel", f'echo scancel "$*" >> {home}/calls')
    put(matrix, "squeue", f'echo squeue "$*" >> {home}/calls; {show_probe("PENDING")}')
    monkeypatch.setattr("dlperf_slurm.checks.doctor.probe.LOOK_SECONDS", 0.0)
    if by == "shell":
        monkeypatch.setenv("SLURM_CLUSTERS", "far")
    settings = ["--set", "max_array_size=9"]
    settings += ["--set", "clusters=far"] if by == "site" else []
    main(["doctor", *SLURM, *settings, "--max-wait", "0.001"])
    calls = (home / "calls").read_text(encoding="utf-8").splitlines()
    assert {call.split()[0] for call in calls} == {"squeue", "scancel"}
    assert all("--clusters=far" in call.split() for call in calls)
    # the job goes on after scancel
    printed = capsys.readouterr().out
    assert "was cancelled" not in printed
    assert "`scancel --clusters=far 17`" in printed


def test_no_probe_is_submitted_for_what_would_be_refused(matrix, home, capsys):
    is_asked = 'case "$*" in *--test-only*) echo invalid partition >&2; exit 1 ;; esac'
    put(matrix, "sbatch", f'{is_asked}; echo "$*" >> {home}/calls')
    # without a matrix it takes the quickstart
    assert main(["doctor", *SLURM[1:], "--set", "partition=nope"]) == 1
    printed = capsys.readouterr().out
    assert "quickstart.toml\n" in printed
    assert "fault     partition: " in printed
    assert "'nope'" in printed
    assert "undecided probe job: " in printed
    assert not (home / "calls").exists()


@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (
            lambda bin_dir: put(bin_dir, "sbatch", "echo 'Invalid feature' >&2; exit 1"),
            "fault     sbatch --test-only: 1n1g, 1n2g, 2n2g: sbatch failed: Invalid feat",
        ),
        # a limit that passes when other jobs end
        (
            lambda bin_dir: put(bin_dir, "sbatch", "echo QOSMaxSubmitJobPerUserLimit >&2; exit 1"),
            "undecided sbatch --test-only: 1n1g, 1n2g, 2n2g: sbatch failed: QOSMax",
        ),
        (
            lambda bin_dir: put(bin_dir, "sbatch", "echo 'Zero Bytes' >&2; exit 1"),
            "fault     sbatch --test-only: 1n1g, 1n2g, 2n2g: sbatch failed: Zero Bytes",
        ),
        (
            lambda bin_dir: Path("results").write_text("no folder", encoding="utf-8"),
            "fault     run directory: {home}/results: ",
        ),
        (
            lambda bin_dir: (find_managed_environment("pytorch") / "bin" / "python").unlink(),
            "fault     environment: pytorch: no environment at ",
        ),
    ],
)
def test_what_needs_no_job_is_named(matrix, home, capsys, monkeypatch, spoil, line):
    expired = base64.urlsafe_b64encode(b'{"exp": 1}').decode().rstrip("=")
    monkeypatch.setenv("SLURM_JWT", f"e30.{expired}.c2ln")
    spoil(matrix)
    assert main(["doctor", *SLURM]) == 1
    lines = capsys.readouterr().out.splitlines()
    found = next(x for x in lines if x.startswith(("fault", "undecided")))
    assert found.startswith(line.format(home=home))
    assert ("dlperf-slurm env create pytorch" in found) == ("environment:" in line)
    assert found.endswith("set SLURM_JWT to a new token") == ("Zero Bytes" in line)


def test_environment_that_may_not_be_read_is_named_with_its_owner(matrix, monkeypatch, capsys):
    venv = find_managed_environment("pytorch")
    (venv / "bin" / "python").unlink()
    # also for root, who may read everything
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path not in denied and access(path, mode))
    denied = (venv, str(venv))
    assert main(["doctor", *SLURM]) == 1
    words = f"pytorch: {venv}: belongs to user {find_user_name()}, and you may not read it"
    assert f"fault     environment: {words}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("setting", "takes", "line"),
    [
        # a plug-in of the cluster may choose the partition, or it is hidden
        ("partition=hidden", True, "ok        partition: 1n1g, 1n2g, 2n2g: this cluster has no "),
        ("partition=hidden", False, "fault     partition: 1n1g, 1n2g, 2n2g: this cluster has no "),
        ("cpus_per_rank=20", False, "fault     cores: "),
        # sbatch takes what the partition does not give, and it stays PENDING
        ("time_limit_minutes.default=61", True, "fault     time limit: "),
    ],
)
def test_what_sbatch_takes_is_submitted_unless_it_would_pend_for_ever(
    matrix, capsys, setting, takes, line
):
    for name in ("srun", "squeue", "sacct"):
        put(matrix, name, "exit 0")
    if not takes:
        put(matrix, "sbatch", "echo not available >&2; exit 1")
    code = main(["submit", *SLURM, "--set", setting])
    printed = capsys.readouterr()
    assert line in printed.err
    is_taken = line.startswith("ok")
    assert (code, "array job 17" in printed.out) == ((0, True) if is_taken else (3, False))
    assert ("--unchecked" in printed.err, Path("results").exists()) == (not is_taken, is_taken)


def test_partition_of_the_shell_counts_if_sbatch_inherits_it(matrix, capsys, monkeypatch):
    monkeypatch.setenv("SBATCH_PARTITION", "small")
    assert main(["submit", *SLURM, "--set", 'inherit=["SBATCH_PARTITION"]']) == 3
    assert "partition small" in capsys.readouterr().err


def test_submit_unchecked_leaves_it_to_slurm(matrix, capsys):
    for name in ("srun", "squeue", "sacct"):
        put(matrix, name, "exit 0")
    assert main(["submit", *SLURM, "--set", "time_limit_minutes.default=61", "--unchecked"]) == 0
    assert capsys.readouterr().out.count("array job 17") == 3


def test_controller_that_falls_silent_leaves_the_probe_undecided(matrix, home, capsys, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.checks.doctor.probe.GRACE_SECONDS", 0.0)
    put(matrix, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    put(matrix, "scancel", "exit 0")
    assert main(["doctor", *SLURM, "--max-wait", "0.01"]) == 1
    assert re.search("undecided probe job: pytorch: .*squeue", capsys.readouterr().out)


def test_build_for_cpus_on_a_site_with_gpus_is_left_out(matrix, home, capsys):
    venv = home / "torch"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    (venv / "lib/python3.11/site-packages/torch-2.13.0+cpu.dist-info").mkdir(parents=True)
    gpus = ("--set", "device=cuda", "--set", f"environments.pytorch.venv={venv}")
    assert main(["doctor", *SLURM, *gpus]) == 2
    out = capsys.readouterr().out
    assert f"left out: pytorch: torch-2.13.0+cpu at {venv} " in out
    assert "`dlperf-slurm env create pytorch --cuda`" in out
