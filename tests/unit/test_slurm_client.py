"""Slurm's client commands: what they are given, and what becomes of their failures."""

import base64
import json
import os

import pytest
from builders import write_program

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.scheduler.sbatch_errors import is_no_answer
from dlperf_slurm.slurm_client import (
    cancel_jobs,
    clean_environment,
    find_cluster_name,
    is_slurm_here,
    read_cluster_config,
    run_client,
)

SCONTROL = """\
cat <<'END'
Configuration data as of 2024-05-01T12:00:00
AccountingStorageHost   = db
ClusterName             = alpha
MaxArraySize            = 1001
SlurmctldHost[0]        = head(10.0.0.1)
TaskPluginParam         =

Slurmctld(primary) at head is UP
END"""


LEAKING = """
SLURM_NTASKS SLURM_JOB_ID SLURMD_NODENAME SBATCH_PARTITION SQUEUE_PARTITION SCANCEL_STATE
SACCT_FORMAT SINFO_PARTITION SCONTROL_ALL SALLOC_QOS SRUN_DEBUG PMIX_RANK PMI_RANK
OMPI_COMM_WORLD_SIZE PRTE_LAUNCHED MASTER_ADDR CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
ROCR_VISIBLE_DEVICES PYTHONPATH PYTHONHOME VIRTUAL_ENV
"""


def test_leftovers_of_a_surrounding_job_are_dropped_and_no_other_variables():
    kept = dict.fromkeys(["SLURM_CONF", "PATH", "HOME", "NCCL_DEBUG", "OMP_NUM_THREADS"], "x")
    assert clean_environment({**dict.fromkeys(LEAKING.split(), "x"), **kept}) == kept


@pytest.mark.parametrize(
    ("script", "output"),
    [
        # the token by which clients authenticate is theirs alone
        ('echo "${SLURM_JWT-unset} ${SLURM_NTASKS-unset}"', "abc unset\n"),
        # pending arrays are not cut short
        ('echo "$SLURM_BITSTR_LEN"', "0\n"),
        ('printf "%s|" "$@"', "--format=%i %T|$(x)|a'b|"),
        ('read line || echo "no input"; echo warning >&2', "no input\n"),
        (r"printf 'caf\351\n'", "caf\ufffd\n"),
    ],
)
def test_client_sees_no_surrounding_job_and_its_output_is_read(
    bin_dir, monkeypatch, script, output
):
    monkeypatch.setenv("SLURM_JWT", "abc")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    write_program(bin_dir, "squeue", script)
    assert run_client(["squeue", "--format=%i %T", "$(x)", "a'b"]) == output
    assert "SLURM_JWT" not in clean_environment(os.environ)


def test_client_that_is_not_there_is_named(bin_dir):
    with pytest.raises(SchedulerError, match=r"^sbatch is not on PATH"):
        run_client(["sbatch"])


def test_no_jobs_are_cancelled_by_a_name_alone(bin_dir):
    write_program(bin_dir, "scancel", "exit 1")
    cancel_jobs([], job_name="probe")
    with pytest.raises(SchedulerError, match="scancel"):
        cancel_jobs(["7"], job_name="probe")


def test_client_that_hangs_is_given_up(bin_dir, monkeypatch):
    monkeypatch.setattr("dlperf_slurm.slurm_client.COMMAND_TIMEOUT_SECONDS", 0.1)
    write_program(bin_dir, "squeue", "exec /usr/bin/tail -f /dev/null")
    with pytest.raises(SchedulerError, match=r"^squeue did not respond.*slurmctld"):
        run_client(["squeue"])


def test_client_inherits_the_descriptors_it_is_given(bin_dir):
    reader, writer = os.pipe()
    write_program(bin_dir, "sbatch", f"echo here > /proc/self/fd/{writer}")
    run_client(["sbatch"], keep_open=(writer,))
    os.close(writer)
    with open(reader, encoding="ascii") as file:  # noqa: PTH123
        assert file.read() == "here\n"


def test_cluster_name_is_asked_of_the_cluster(bin_dir):
    assert (is_slurm_here(), find_cluster_name()) == (False, None)
    write_program(bin_dir, "sbatch", "exit 1")
    write_program(bin_dir, "scontrol", "exit 1")
    assert (is_slurm_here(), find_cluster_name()) == (True, None)
    write_program(bin_dir, "scontrol", f"PATH=/usr/bin:/bin\n{SCONTROL}")
    assert find_cluster_name() == "alpha"
    config = read_cluster_config()
    assert (config["MaxArraySize"], config["TaskPluginParam"]) == ("1001", "")


CONTROLLER, MUNGE = "`scontrol ping`", "is munged running on this host"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("sbatch: error: Invalid account", ""),
        ("squeue: error: Unable to contact slurm controller (connect failure)", CONTROLLER),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", CONTROLLER),
        ("error: Munge encode failed: Failed to connect to munged", MUNGE),
        ("slurm_load_jobs error: Protocol authentication error", MUNGE),
        ("error: Could not load SLURM_JWT environment variable.", "`scontrol token`"),
        ("sacct: error: Problem talking to the database: Connection refused", "`sacctmgr show"),
        ("squeue: fatal: Could not establish a configuration source", "is it a login node"),
    ],
)
def test_failure_comes_with_the_words_of_the_client_and_what_to_do(bin_dir, words, hint):
    write_program(bin_dir, "squeue", f"echo '{words}' >&2; exit 1")
    with pytest.raises(SchedulerError) as caught:
        run_client(["squeue"])
    said, _, advice = str(caught.value).partition(f"squeue failed: {words}")
    assert (said, hint in advice, bool(advice)) == ("", True, bool(hint))
    write_program(bin_dir, "squeue", "exit 7")
    with pytest.raises(SchedulerError, match=r"^squeue failed: exit code 7$"):
        run_client(["squeue"])


@pytest.mark.parametrize("words", ["Zero Bytes were transmitted", "Protocol authentication error"])
def test_token_that_may_have_expired_is_named(bin_dir, monkeypatch, words):
    monkeypatch.setenv("SLURM_JWT", "abc")
    write_program(bin_dir, "squeue", f"echo '{words}' >&2; exit 1")
    with pytest.raises(SchedulerError, match=f"{words}.*`scontrol token`"):
        run_client(["squeue"])


@pytest.mark.parametrize(("expiry", "is_expired"), [(1, True), (1e11, False), ("soon", False)])
def test_expired_token_is_named_and_not_waited_for(bin_dir, monkeypatch, expiry, is_expired):
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expiry, "sun": "u"}).encode())
    monkeypatch.setenv("SLURM_JWT", f"e30.{claims.decode().rstrip('=')}.c2ln")
    write_program(bin_dir, "squeue", "echo 'Zero Bytes were transmitted or received' >&2; exit 1")
    with pytest.raises(SchedulerError, match="`scontrol token") as caught:
        run_client(["squeue"])
    assert ("expired at 1970-01-01 00:00:01 UTC" in str(caught.value)) is is_expired
    assert is_no_answer(str(caught.value)) is not is_expired


def test_token_of_deeply_nested_json_is_no_traceback(bin_dir, monkeypatch):
    claims = base64.urlsafe_b64encode(b'{"exp":' + b"[" * 50_000)
    monkeypatch.setenv("SLURM_JWT", f"e30.{claims.decode().rstrip('=')}.c2ln")
    write_program(bin_dir, "squeue", "echo 'Zero Bytes were transmitted or received' >&2; exit 1")
    with pytest.raises(SchedulerError, match="SLURM_JWT is not valid"):
        run_client(["squeue"])
