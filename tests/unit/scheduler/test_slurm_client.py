"""Slurm's client commands: what they are given, and what becomes of their failures."""

import os

import pytest
from builders import write_program

from dlperf_slurm.errors import SchedulerError
from dlperf_slurm.slurm_client import (
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


@pytest.mark.parametrize(
    "name",
    [
        "SLURM_NTASKS",
        "SLURM_JOB_ID",
        "SLURMD_NODENAME",
        "SBATCH_PARTITION",
        "SQUEUE_PARTITION",
        "SCANCEL_STATE",
        "SACCT_FORMAT",
        "SINFO_PARTITION",
        "SCONTROL_ALL",
        "SALLOC_QOS",
        "SRUN_DEBUG",
        "PMIX_RANK",
        "PMI_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PRTE_LAUNCHED",
        "MASTER_ADDR",
        "CUDA_VISIBLE_DEVICES",
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
    ],
)
def test_leftover_of_a_surrounding_job_is_dropped(name):
    assert clean_environment({name: "x"}) == {}


@pytest.mark.parametrize("name", ["SLURM_CONF", "PATH", "HOME", "NCCL_DEBUG", "OMP_NUM_THREADS"])
def test_what_the_client_or_the_user_needs_is_kept(name):
    assert clean_environment({name: "x"}) == {name: "x"}


def test_token_by_which_clients_authenticate_is_theirs_alone(bin_dir, monkeypatch):
    monkeypatch.setenv("SLURM_JWT", "abc")
    write_program(bin_dir, "squeue", 'echo "${SLURM_JWT-unset}"')
    assert run_client(["squeue"]) == "abc\n"
    assert "SLURM_JWT" not in clean_environment(os.environ)


def test_client_does_not_see_a_surrounding_job(bin_dir, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "1")
    write_program(bin_dir, "squeue", 'echo "${SLURM_NTASKS-unset}"')
    assert run_client(["squeue"]) == "unset\n"


def test_pending_arrays_are_not_cut_short(bin_dir):
    write_program(bin_dir, "squeue", 'echo "$SLURM_BITSTR_LEN"')
    assert run_client(["squeue"]) == "0\n"


def test_arguments_reach_the_client_as_they_are(bin_dir):
    write_program(bin_dir, "squeue", 'printf "%s|" "$@"')
    assert run_client(["squeue", "--format=%i %T", "$(x)", "a'b"]) == "--format=%i %T|$(x)|a'b|"


def test_client_reads_no_input(bin_dir):
    write_program(bin_dir, "sbatch", 'read line || echo "no input"')
    assert run_client(["sbatch"]) == "no input\n"


def test_failure_says_what_the_client_said(bin_dir):
    write_program(bin_dir, "sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    with pytest.raises(SchedulerError, match=r"^sbatch failed: sbatch: error: Invalid account$"):
        run_client(["sbatch"])


def test_silent_failure_has_its_exit_code(bin_dir):
    write_program(bin_dir, "sbatch", "exit 7")
    with pytest.raises(SchedulerError, match=r"^sbatch failed: exit code 7$"):
        run_client(["sbatch"])


def test_warning_of_a_client_that_succeeds_is_not_its_output(bin_dir):
    write_program(bin_dir, "squeue", "echo 'warning' >&2; echo 5")
    assert run_client(["squeue"]) == "5\n"


def test_client_that_is_not_there_is_named(bin_dir):
    with pytest.raises(SchedulerError, match=r"^sbatch is not on PATH: is this a login node\?$"):
        run_client(["sbatch"])


def test_client_that_hangs_is_given_up(bin_dir):
    write_program(bin_dir, "squeue", "exec /usr/bin/tail -f /dev/null")
    with pytest.raises(SchedulerError, match=r"^squeue did not answer in 0 s \(the con"):
        run_client(["squeue"], timeout_seconds=0.1)


def test_output_that_is_not_utf_8_is_read_all_the_same(bin_dir):
    write_program(bin_dir, "squeue", r"printf 'caf\351\n'")
    assert run_client(["squeue"]) == "caf\ufffd\n"


def test_client_inherits_the_descriptors_it_is_given(bin_dir):
    reader, writer = os.pipe()
    write_program(bin_dir, "sbatch", f"echo here > /proc/self/fd/{writer}")
    run_client(["sbatch"], keep_open=(writer,))
    os.close(writer)
    with open(reader, encoding="ascii") as file:  # noqa: PTH123
        assert file.read() == "here\n"


def test_cluster_config_is_read_by_key(bin_dir):
    write_program(bin_dir, "scontrol", f"PATH=/usr/bin:/bin\n{SCONTROL}")
    config = read_cluster_config()
    assert (config["ClusterName"], config["MaxArraySize"], config["TaskPluginParam"]) == (
        "alpha", "1001", "",
    )  # fmt: skip


def test_slurm_is_here_when_sbatch_is_on_path(bin_dir):
    write_program(bin_dir, "sbatch", "exit 1")
    assert is_slurm_here()


def test_slurm_is_not_here_without_sbatch(bin_dir):
    assert not is_slurm_here()


def test_cluster_name_is_asked_of_the_cluster(bin_dir):
    write_program(bin_dir, "sbatch", "exit 1")
    write_program(bin_dir, "scontrol", f"PATH=/usr/bin:/bin\n{SCONTROL}")
    assert find_cluster_name() == "alpha"


def test_cluster_that_does_not_answer_has_no_name(bin_dir):
    write_program(bin_dir, "sbatch", "exit 1")
    write_program(bin_dir, "scontrol", "exit 1")
    assert find_cluster_name() is None


def test_machine_without_slurm_has_no_cluster_name(bin_dir):
    assert find_cluster_name() is None


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("squeue: error: Unable to contact slurm controller (connect failure)", "`scontrol ping`"),
        ("slurm_load_jobs error: Socket timed out on send/recv operation", "`scontrol ping`"),
        ("error: Munge encode failed: Failed to connect to munged", "is munged running here"),
        ("slurm_load_jobs error: Protocol authentication error", "is munged running here"),
        ("sacct: error: Problem talking to the database: Connection refused", "`sacctmgr show"),
        ("squeue: fatal: Could not establish a configuration source", "is it a login node"),
    ],
)
def test_failure_that_is_known_comes_with_what_to_do(bin_dir, words, hint):
    write_program(bin_dir, "squeue", f"echo '{words}' >&2; exit 1")
    with pytest.raises(SchedulerError) as caught:
        run_client(["squeue"])
    assert str(caught.value).startswith(f"squeue failed: {words} (")
    assert hint in str(caught.value)


def test_failure_that_is_not_known_is_passed_on_as_it_is(bin_dir):
    write_program(bin_dir, "squeue", "echo 'Invalid job id specified' >&2; exit 1")
    with pytest.raises(SchedulerError) as caught:
        run_client(["squeue"])
    assert str(caught.value) == "squeue failed: Invalid job id specified"
