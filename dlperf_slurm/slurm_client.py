"""A Slurm client command -> its output, run with a clean environment and a timeout."""

import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Optional

from dlperf_slurm.errors import SchedulerError

COMMAND_TIMEOUT_SECONDS = 60.0

# If the tool itself runs inside a job, that job's variables change what sbatch and srun do (an
# inherited SLURM_NTASKS=1 starts one rank instead of two). Users' variables for the clients hide
# jobs (SQUEUE_PARTITION) or exempt them from scancel (SCANCEL_STATE). SLURM_CONF must stay.
SBATCH_PREFIX = "SBATCH_"
_LEAKING_PREFIXES = (
    *("SLURM_", "SLURMD_", "SRUN_", "SALLOC_", SBATCH_PREFIX, "SQUEUE_", "SCANCEL_", "SACCT_"),
    *("SINFO_", "SCONTROL_", "PMI_", "PMI2_", "PMIX_", "OMPI_", "PRTE_"),
)
# the GPUs of a surrounding job or, where no scheduler hands out GPUs, those that a user keeps to
DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_LEAKING_NAMES = frozenset(
    ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", *DEVICE_VARIABLES,
     "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
)  # fmt: skip
_KEPT_NAMES = frozenset(("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_TESTBED"))
# the token of auth/jwt: clients need it, but local jobs must not inherit it
_TOKEN = "SLURM_JWT"
# variables that select the cluster of the clients, and of sbatch
CLUSTER_VARIABLES = ("SLURM_CLUSTERS", "SBATCH_CLUSTERS")

# answers of sbatch: a sentence of its own or of a wrapper, and "7" or "7;cluster" of --parsable
_SUBMITTED = r"\bSubmitted batch job ([1-9]\d{0,9})\b"
_PARSABLE = r"^[ \t]*([1-9]\d{0,9})(?:;[\w.-]+)?[ \t\r]*$"

# errors of clients whose token the controller refuses; a restarting controller causes them too
_PERHAPS_REFUSED = re.compile("authentication|Zero Bytes")
_NEW_TOKEN = (
    "if slurmctld responds to others, the token in SLURM_JWT is not valid any more: `scontrol "
    "token` prints one where munge runs"
)
# beginning of the hint for an expired token
EXPIRED_TOKEN = "the token in SLURM_JWT expired"
# pattern of a common error message of Slurm's clients -> hint
_HINTS = (
    (
        r"SLURM_JWT|auth/jwt",
        "set SLURM_JWT: `scontrol token` prints a token on a host where munge runs",
    ),
    (
        r"[Mm]unge|authentication",
        "is munged running on this host, and is the clock the same as the controller's? To "
        "check both: `munge -n | ssh CONTROLLER unmunge`",
    ),
    (
        r"slurmdbd|database|accounting_storage",
        "slurmdbd does not respond; `sacctmgr show cluster` works when it is back",
    ),
    (
        r"[Ii]nvalid job array specification",
        "an array has more elements than MaxArraySize allows: set max_array_size in the site file",
    ),
    (
        r"contact slurm controller|Connection refused|[Tt]imed out|Zero Bytes|did not respond",
        "slurmctld does not respond; `scontrol ping` shows when it is back. Submitted jobs "
        "continue",
    ),
    (
        r"configuration source|configuration file|slurm\.conf",
        "this host has no Slurm configuration: is it a login node, and does SLURM_CONF name "
        "the right file?",
    ),
)

# the beginnings of the states of nodes that start no job (sinfo(1), NODE STATE CODES)
_UNUSABLE = (
    *("blocked", "down", "drain", "err", "fail", "futr", "future", "inval", "maint", "no_respond"),
    *("reboot", "unk"),
)


def clean_environment(
    environment: Mapping[str, str], inherit: Collection[str] = ()
) -> dict[str, str]:
    """Return the variables that a Slurm command may inherit from `environment`.

    Those of a surrounding job or virtual environment are removed, and those that are options of
    Slurm's commands (SQUEUE_..., SBATCH_...), except those that `inherit` names.
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT_NAMES
        or name in inherit
        or not (name.startswith(_LEAKING_PREFIXES) or name in _LEAKING_NAMES)
    }


def list_dropped_variables(environment: Mapping[str, str], inherit: Collection[str]) -> list[str]:
    """List the SBATCH_ variables of the user's shell that are not passed to sbatch.

    `inherit` names those that are; see `clean_environment`.
    """
    kept = clean_environment(environment, inherit)
    return sorted(
        name
        for name in environment
        if name.startswith(SBATCH_PREFIX) and name not in {*kept, *CLUSTER_VARIABLES}
    )


def find_shell_cluster(environment: Mapping[str, str]) -> str:
    """Return the cluster that SLURM_CLUSTERS names; "" unless it is exactly one."""
    name = environment.get("SLURM_CLUSTERS", "")
    return name if re.fullmatch(r"[A-Za-z0-9_.-]+", name) and name != "all" else ""


def describe_clusters(environment: Mapping[str, str], clusters: str) -> list[str]:
    """Return a message for each variable of the shell that names a cluster: whether jobs go there.

    `clusters` is the site's setting, '' for this host's cluster.
    """
    lines = []
    for variable in CLUSTER_VARIABLES:
        named = environment.get(variable, "")
        if named and named == clusters:
            lines.append(f"jobs go to cluster {clusters}, as {variable} says")
        elif named:
            place = f"cluster {clusters}" if clusters else "the cluster of this host"
            lines.append(
                f"ignored: {variable}={named}; jobs go to {place}. For another cluster, set "
                'clusters = "NAME" in the site file, or --set clusters=NAME'
            )
    return lines


def get_cluster_option(clusters: str) -> list[str]:
    """Return ["--clusters=NAME"] to select a cluster, or [] for '', the cluster of this host."""
    return [f"--clusters={clusters}"] if clusters else []


def is_slurm_here() -> bool:
    """Return whether sbatch is on PATH; the controller is not asked."""
    import shutil

    return shutil.which("sbatch") is not None


def run_client(
    command: Sequence[str], keep_open: Sequence[int] = (), inherit: Collection[str] = ()
) -> str:
    """Run a Slurm client command and return its standard output.

    The command inherits the descriptors `keep_open` and the SBATCH_ variables named in `inherit`.
    Raises SchedulerError if it fails, is missing, or takes longer than COMMAND_TIMEOUT_SECONDS.
    """
    # imported here, as a run that has ended asks no scheduler
    import subprocess

    environment = clean_environment(os.environ, inherit)
    if _TOKEN in os.environ:
        environment[_TOKEN] = os.environ[_TOKEN]
    # otherwise the task list of a pending array is truncated at 64 bytes
    environment["SLURM_BITSTR_LEN"] = "0"
    environment["SLURM_TIME_FORMAT"] = "standard"
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_TIMEOUT_SECONDS,
            pass_fds=keep_open,
        )
    except FileNotFoundError:
        raise SchedulerError(f"{command[0]} is not on PATH: is this a login node?") from None
    except subprocess.TimeoutExpired as error:
        # stderr may be "Slurm temporarily unable to accept job, sleeping and retrying"
        words = (error.stderr or b"").decode(errors="replace").strip()
        message = f"{command[0]} did not respond within {COMMAND_TIMEOUT_SECONDS:.0f} s"
        raise SchedulerError(add_hint(f"{message}: {words}" if words else message)) from None
    if done.returncode:
        message = done.stderr.strip() or f"exit code {done.returncode}"
        raise SchedulerError(add_hint(f"{command[0]} failed: {message}"))
    return done.stdout


def add_hint(message: str) -> str:
    """Return an error message of a Slurm client, with a hint in parentheses if one fits."""
    hint = next((hint for signs, hint in _HINTS if re.search(signs, message)), "")
    if _TOKEN in os.environ and _PERHAPS_REFUSED.search(message):
        hint = _describe_expired_token() or _NEW_TOKEN
    return f"{message} ({hint})" if hint else message


def _describe_expired_token() -> str:
    """Return when the token in SLURM_JWT expired; '' if it has not, or states no time.

    The time is the claim `exp` of RFC 7519, in seconds since 1970; the signature is not checked.
    """
    import base64
    import json

    try:
        claims = os.environ[_TOKEN].split(".")[1]
        expiry = float(json.loads(base64.urlsafe_b64decode(f"{claims}=="))["exp"])
        written = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(expiry))
    except (ValueError, LookupError, TypeError, OverflowError, OSError, RecursionError):
        return ""
    if expiry > time.time():
        return ""
    return f"{EXPIRED_TOKEN} at {written}: `scontrol token lifespan=SECONDS` prints another one"


def is_forbidden(message: str) -> bool:
    """Return whether a Slurm command's error message says that this user lacks permission."""
    return re.search("permission denied|access denied|not permitted", message, re.I) is not None


def is_job_id(text: str) -> bool:
    """Return whether a text is a Slurm job id, so that it cannot be taken for an option."""
    return re.fullmatch("[1-9][0-9]{0,9}", text) is not None


def parse_job_id(answer: str) -> str:
    """Return the job id in the output of `sbatch --parsable`, which may have other lines too.

    Raises SchedulerError unless the output contains exactly one: a wrapper may print other numbers.
    """
    found: list[str] = re.findall(_SUBMITTED, answer) or re.findall(_PARSABLE, answer, flags=re.M)
    if len(set(found)) != 1:
        words = "several job ids" if found else "no job id"
        raise SchedulerError(f"sbatch printed {words}: {answer.strip()[-200:]!r}")
    return found[0]


def cancel_jobs(job_ids: Sequence[str], clusters: str = "", job_name: str = "") -> None:
    """Cancel jobs with scancel; if `job_name` is set, only those of `job_ids` with that name.

    Does not wait for their end. `clusters` names their cluster, '' for that of this host. Raises
    SchedulerError if scancel is missing, fails or does not answer.
    """
    if not job_ids:
        # scancel would cancel all jobs of this name
        return
    name = [f"--name={job_name}"] if job_name else []
    run_client(["scancel", *get_cluster_option(clusters), *name, *job_ids])


def read_cluster_config(clusters: str = "") -> dict[str, str]:
    """Read the cluster's configuration as key -> value, such as ClusterName and MaxArraySize.

    `clusters` names the cluster, '' for that of this host. Raises SchedulerError if the cluster
    does not answer.
    """
    return parse_config(run_client(["scontrol", *get_cluster_option(clusters), "show", "config"]))


def parse_config(output: str) -> dict[str, str]:
    """Parse the output of `scontrol show config` to key -> value."""
    # values may be empty, so the pattern must not match line breaks
    return dict(re.findall(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", output, re.M))


def read_boot_times(clusters: str = "") -> dict[str, str]:
    """Return when each node of the cluster was booted, as ISO 8601 in local time, by node name.

    `clusters` names the cluster, '' for that of this host. The time is "" if Slurm does not know
    it. The result is empty if the cluster does not answer.
    """
    command = ["scontrol", *get_cluster_option(clusters), "--all", "--oneliner", "show", "node"]
    try:
        lines = run_client(command).splitlines()
    except SchedulerError:
        return {}
    nodes = (re.match(r"NodeName=(\S+)(?:.* BootTime=(\d\S*))?", line) for line in lines)
    return {node[1]: node[2] or "" for node in nodes if node}


def read_node_states(clusters: str, partition: str, names: str = "") -> dict[str, str]:
    """Return the state of each node of a partition as sinfo prints it, such as "idle" or "down*".

    `partition` is '' for the cluster's default, `names` a host list to choose from ("n[1-8]"), or
    ''. Raises SchedulerError if the cluster does not answer.
    """
    command = ["sinfo", *get_cluster_option(clusters), "--noheader", "--Node", "--format=%N|%T|%P"]
    command += [f"--partition={partition}"] if partition else []
    command += [f"--nodes={names}"] if names else []
    rows = [line.split("|") for line in run_client(command).splitlines() if line.count("|") == 2]
    return {name: state for name, state, of in rows if partition or of.rstrip().endswith("*")}


def is_usable(state: str) -> bool:
    """Return whether a node in this state of sinfo runs jobs, now or when its jobs have ended."""
    return not state.endswith("*") and not state.lower().startswith(_UNUSABLE)


def find_cluster_name() -> Optional[str]:
    """Return the name of the cluster in SLURM_CLUSTERS, else of this host's cluster.

    None if there is no Slurm, or it does not answer.
    """
    if not is_slurm_here():
        return None
    try:
        return read_cluster_config(find_shell_cluster(os.environ)).get("ClusterName")
    except SchedulerError:
        return None
