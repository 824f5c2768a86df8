"""Pydantic models of the site settings that may differ by topology or framework."""

import re
from typing import Annotated, Literal, Optional

from pydantic import AfterValidator, Field

from dlperf_slurm.config.folders import check_search_folder, expand_home, make_absolute_path
from dlperf_slurm.config.suggestions import OneOf, check_env_name, check_known, suggest
from dlperf_slurm.config.toml_tables import OneOrMore, TomlModel
from dlperf_slurm.containers import RUNTIMES
from dlperf_slurm.contract.topology import PATTERN, Topology, parse_topology
from dlperf_slurm.launchers import LAUNCHERS
from dlperf_slurm.worker.frameworks import list_frameworks
from dlperf_slurm.worker.rendezvous import KINDS, MPI, TORCHRUN

PositiveInt = Annotated[int, Field(ge=1)]
# NVIDIA's "8.0" or AMD's "gfx90a"
COMPUTE_CAPABILITY = r"^([0-9]{1,2}\.[0-9]|gfx[0-9a-f]{3,5})$"
# sbatch options that every script sets, and where their values come from
OWN_OPTIONS = {
    "array": "the matrix",
    "clusters": "clusters",
    "cpus-per-task": "cpus_per_rank",
    "error": "the run directory",
    "job-name": "the run",
    "nodes": "the axis topology",
    "ntasks": "the axis topology",
    "ntasks-per-node": "the axis topology",
    "open-mode": "the run directory",
    "output": "the run directory",
    "time": "time_limit_minutes",
    "wrap": "the template",
}
# short names of the same options
OWN_LETTERS = {
    "J": "job-name",
    "M": "clusters",
    "N": "nodes",
    "a": "array",
    "c": "cpus-per-task",
    "e": "error",
    "n": "ntasks",
    "o": "output",
    "t": "time",
}
_DIRECTIVE = re.compile(r"--([A-Za-z0-9][\w-]*)(?:[= ].*)?|-([A-Za-z])(?: ?[^ ].*)?", re.ASCII)


class NodeCheck(TomlModel):
    """Checks that a node must pass before ranks start on it; none by default.

    If one fails, the array task ends as UNHEALTHY before anything is measured.
    """

    devices: bool = False
    """Check that every GPU of the job on the node responds."""
    ecc: bool = False
    """Check that no GPU has uncorrectable ECC errors or pending row remaps, or needs a reset."""
    xid_hours: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """Number of past hours to check the kernel log for hardware Xid errors; 0 skips the check."""
    clocks: bool = False
    """Check that no GPU is throttled by heat or power, or has its clocks set below the default."""
    links: bool = False
    """Check that GPUs have full PCIe links, and that NVLink, NVSwitches and xGMI work."""
    ports: bool = False
    """Check that InfiniBand and RoCE ports are active, with a GID and equal rates and MTUs.

    It checks all ports, or only those that NCCL_IB_HCA selects.
    """
    stale_processes: bool = False
    """Check that no process uses the GPUs, and none of yours is left from another job."""
    free_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Minimum free memory of a node."""
    free_device_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Minimum free memory of each GPU."""
    open_files: Annotated[int, Field(ge=0)] = 0
    """Minimum limit of open files (`ulimit -n`) on a node, outside containers."""
    locked_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Minimum limit of locked memory (`ulimit -l`) on a node, outside containers."""
    shared_memory_mib: Annotated[int, Field(ge=0)] = 0
    """Minimum size of /dev/shm on a node, outside containers."""
    commands: OneOrMore[str] = ()
    """More checks: lines of bash, such as "nhc"; if one fails, its last output is the reason."""


class NodeSettings(TomlModel):
    """Setup and checks that run once on each node of an array task, before the ranks start."""

    setup: OneOrMore[str] = ()
    """Bash lines to prepare a node, each in its own shell; the node is UNHEALTHY if one fails."""
    check: NodeCheck = NodeCheck()
    """Checks that a node must pass."""
    energy_command: str = ""
    """Bash that prints the node's power or energy, such as "350 W" or "5120 J".

    It runs on each node every 5 s during the measured steps. Default: Cray's pm_counters.
    """
    timeout_seconds: Annotated[float, Field(gt=0, strict=False)] = 300.0
    """Time limit of each check, and of each line of `setup`, on a node."""


def _check_topology_key(text: str) -> str:
    if text != "default":
        try:
            parse_topology(text)
        except ValueError as error:
            raise ValueError(f"{error}{suggest(text, ['default'])}") from error
    return text


def _check_gpu_type(text: str) -> str:
    # the type is the last part of --gres=gpu:a100
    if text.startswith("gpu:"):
        raise ValueError(
            f"{text!r}: write only the type of the GPU, such as 'a100'; the key gpu_request sets "
            "the sbatch option (--gpus-per-node or --gres)"
        )
    return text


def _check_framework(name: str) -> str:
    return check_known(name, list_frameworks(), "a framework")


def check_directive(line: str) -> str:
    """Return an #SBATCH option unchanged; raise ValueError if invalid, or if the tool sets it."""
    if not line.isprintable() or "\\" in line:
        raise ValueError(
            f"{line!r}: line breaks and backslashes are not allowed on an #SBATCH line"
        )
    match = _DIRECTIVE.fullmatch(line)
    if match is None:
        raise ValueError(
            f"{line!r} is not an #SBATCH option; write '--name=value', '--name value' or '-C value'"
        )
    name, letter = match.groups()
    for own, setter in OWN_OPTIONS.items():
        # sbatch accepts abbreviated options
        if own == OWN_LETTERS.get(letter) or (name and own.startswith(name)):
            raise ValueError(f"{line!r}: --{own} is already set by {setter}; remove it here")
    return line


def make_absolute(path: str) -> str:
    """Return an absolute path, `~` expanded; raise ValueError if the home folder is unknown."""
    # jobs do not run in the directory that they are submitted from
    return str(make_absolute_path(expand_home(path)))


class LauncherOptions(TomlModel):
    """The program that starts the ranks, and its options."""

    name: Annotated[str, OneOf("a launcher", lambda: sorted(LAUNCHERS))] = "srun"
    """Program that starts the ranks; the default without Slurm is "mpirun"."""
    mpi: str = "pmix"
    """Value of `srun --mpi`; with "none", the option is left out."""
    flags: OneOrMore[str] = ()
    """More launcher options (torchrun: of srun); values of the topology replace {{ nodes }} etc."""
    command: str = ""
    """Command line of the launcher "command"; values of the topology replace {{ nodes }} etc."""


class Rendezvous(TomlModel):
    """Settings for clusters whose hosts do not reach each other by their own names."""

    host_suffix: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]*$")] = ""
    """Suffix of host names on the rendezvous network: with "i", host "n1" is reached as "n1i"."""
    interface: Annotated[str, Field(pattern=r"^[^\s/]{0,15}$")] = ""
    """Network interface that the ranks, NCCL and Gloo use, such as "ib0"."""


FrameworkName = Annotated[str, AfterValidator(_check_framework)]
EnvTable = dict[Annotated[str, AfterValidator(check_env_name)], str]


class Container(TomlModel):
    """Container image of a framework's ranks; `python` is then the one in the image.

    The run directory and the data sets are mounted at their own paths, except with Shifter, which
    mounts the site's file systems itself, and with `--environment` and `--uenv`, whose files define
    the mounts.
    """

    runtime: Annotated[str, OneOf("a container runtime", lambda: sorted(RUNTIMES))]
    """Container runtime, or Slurm plug-in, that starts the container."""
    image: Annotated[str, Field(min_length=1)]
    """Container image, written as the runtime expects it."""
    options: OneOrMore[str] = ()
    """More options of the runtime; values of the topology replace {{ nodes }} etc."""
    mounts: OneOrMore[str] = ()
    """More bind mounts of the container, as "/folder" or "/outside:/inside"."""
    entrypoint: bool = False
    """Whether to run the image's entry point first; no effect if the runtime cannot skip it."""


class Environment(TomlModel):
    """Environment of a framework on this site: modules first, then a virtual environment."""

    venv: Optional[
        Annotated[str, AfterValidator(make_absolute), AfterValidator(check_search_folder)]
    ] = None
    """Virtual environment of the framework."""
    python: str = "python"
    """Python of the framework, by name or path."""
    modules: OneOrMore[str] = ()
    """Environment modules to load before the virtual environment."""
    setup: OneOrMore[str] = ()
    """Lines of bash to run before `modules` are loaded; the array task fails if one fails."""
    env: EnvTable = {}
    """Environment variables; `${NAME}` in a value is expanded in the job."""
    rank_env: EnvTable = {}
    """Environment variables of the ranks only, not of the job script's own commands."""
    wrapper: OneOrMore[str] = ()
    """Command before Python or the container of a rank; topology values replace {{ nodes }} etc."""
    container: Optional[Container] = None
    """Container in which the ranks run."""
    host_python: Optional[str] = None
    """Python 3.7+ for the job script; default without a container: that of the framework."""


class JobSettings(TomlModel):
    """Resources that jobs request, and how they start ranks."""

    cpus_per_rank: PositiveInt = 1
    """CPU cores of each rank; the default for GPUs on Slurm is 8."""
    partition: Optional[str] = None
    """Partition of the jobs."""
    account: Optional[str] = None
    """Slurm account that the jobs are charged to."""
    qos: Optional[str] = None
    """Quality of service of the jobs."""
    constraint: Optional[str] = None
    """Features that the nodes must have (`--constraint`)."""
    reservation: Optional[str] = None
    """Slurm reservation that the jobs use."""
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    """Option by which a job requests GPUs."""
    gpu_type: Optional[Annotated[str, AfterValidator(_check_gpu_type)]] = None
    """GPU type to request."""
    compute_capability: Optional[Annotated[str, Field(pattern=COMPUTE_CAPABILITY)]] = None
    """GPU architecture, as "8.0" or "gfx90a"; cases of frameworks built without it are left out."""
    exclusive: bool = False
    """Whether jobs have their nodes to themselves (`--exclusive`)."""
    memory_mib_per_node: Optional[Annotated[int, Field(ge=0)]] = None
    """Memory to request on each node, in MiB; 0 requests all."""
    time_limit_minutes: Annotated[
        dict[Annotated[str, AfterValidator(_check_topology_key)], PositiveInt],
        Field(json_schema_extra={"propertyNames": {"pattern": f"^({PATTERN}|default)$"}}),
    ] = {"default": 30}
    """Time limit of an array task, in minutes, by topology; "default" is for all others."""
    array_throttle: Optional[PositiveInt] = None
    """Largest number of array tasks of an array job that run at the same time."""
    tasks_per_job: PositiveInt = 1
    """Number of array tasks that one Slurm job runs in sequence, each with its own time limit."""
    directives: OneOrMore[Annotated[str, AfterValidator(check_directive)]] = ()
    """More #SBATCH options; {{ nodes }} and the like are replaced by values of the topology."""
    task_request: Literal["ntasks-per-node", "ntasks"] = "ntasks-per-node"
    """Option by which sbatch and srun get the number of ranks."""
    setup: OneOrMore[str] = ()
    """Lines of bash that run first in each array task; the task fails if one fails."""
    modules: OneOrMore[str] = ()
    """Environment modules to load after `setup`."""
    after_modules: OneOrMore[str] = ()
    """Lines of bash that run after the modules are loaded."""
    env: EnvTable = {}
    """Environment variables of all jobs; `${NAME}` in a value is expanded in the job."""
    rank_env: EnvTable = {}
    """Environment variables of the ranks only, not of the job script's own commands."""
    template: Optional[Annotated[str, AfterValidator(make_absolute)]] = None
    """Job script template to use instead of the one in the package."""
    node: NodeSettings = NodeSettings()
    """Setup and health checks that run once on each node before the ranks start."""
    launcher: LauncherOptions = LauncherOptions()
    """Program that starts the ranks, and its options."""
    ranks: Annotated[str, OneOf("a rendezvous method", lambda: KINDS)] = MPI
    """How ranks find each other: by mpi4py, or by sockets and variables of srun or torchrun."""
    rendezvous: Rendezvous = Rendezvous()
    """Network over which the ranks first find each other (rendezvous)."""
    environments: dict[FrameworkName, Environment] = {}
    """Python environment of each framework."""

    @property
    def starting_launcher(self) -> str:
        """Return the name of the launcher: torchrun instead of srun if `ranks` is "torchrun"."""
        is_by_torchrun = self.ranks == TORCHRUN and self.launcher.name == "srun"
        return TORCHRUN if is_by_torchrun else self.launcher.name

    def get_time_limit_minutes(self, topology: Topology) -> int:
        """Return an array task's time limit in minutes: of its topology, else the default or 30."""
        limits = self.time_limit_minutes
        return limits.get(str(topology), limits.get("default", 30))
