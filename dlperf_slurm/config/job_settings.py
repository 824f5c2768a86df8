"""The settings of a site that may differ by topology or framework, as pydantic checks them."""

import re
from typing import Annotated, Any, Literal, Optional

from pydantic import AfterValidator, Field

from dlperf_slurm.config.folders import check_search_folder, expand_home
from dlperf_slurm.config.known_names import check_env_name, check_known, suggest
from dlperf_slurm.config.node_settings import NodeSettings
from dlperf_slurm.config.toml_tables import OneOrMore, Table
from dlperf_slurm.containers import RUNTIMES
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.launchers import LAUNCHERS
from dlperf_slurm.worker.frameworks import list_frameworks
from dlperf_slurm.worker.joining import KINDS, MPI, TORCHRUN, Joining

# "8.0" as NVIDIA has it; "gfx90a", which is AMD's, so that its GPUs are not taken for NVIDIA's
COMPUTE_CAPABILITY = r"^([0-9]{1,2}\.[0-9]|gfx[0-9a-f]{3,5})$"


def _check_topology_key(text: str) -> str:
    if text != "default":
        try:
            parse_topology(text)
        except ValueError as error:
            raise ValueError(f"{error}{suggest(text, ['default'])}") from error
    return text


def _check_gpu_type(text: str) -> str:
    # as in --gres=gpu:a100, where it is the last part
    if text.startswith("gpu:"):
        raise ValueError(f"{text!r}: write the type alone, as in 'a100'; gpu_request says the rest")
    return text


def _check_framework(name: str) -> str:
    return check_known(name, list_frameworks(), "a framework")


# the options of sbatch that every script has, with what sets them
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


# the same in short, as sbatch has them
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


def check_directive(line: str) -> str:
    """Return an option of sbatch, alone or with its value; raises ValueError for what is none."""
    if not line.isprintable() or "\\" in line:
        raise ValueError(f"{line!r}: line breaks and backslashes cannot stand on an #SBATCH line")
    match = _DIRECTIVE.fullmatch(line)
    if match is None:
        raise ValueError(
            f"{line!r} is no option as on an #SBATCH line; write '--name=value', '--name value' or "
            "'-C value'"
        )
    name, letter = match.groups()
    for own, setter in OWN_OPTIONS.items():
        # sbatch takes the beginning of an option for the option
        if own == OWN_LETTERS.get(letter) or (name and own.startswith(name)):
            raise ValueError(f"{line!r}: --{own} is set by {setter}, and by nothing else")
    return line


def make_absolute(path: str) -> str:
    """The path from the root on; one that is relative is looked up from the working directory."""
    # jobs do not run in the directory that they are submitted from
    return str(expand_home(path).absolute())


PositiveInt = Annotated[int, Field(ge=1)]


def _check_launcher(name: str) -> str:
    return check_known(name, sorted(LAUNCHERS), "a launcher")


def _check_runtime(name: str) -> str:
    return check_known(name, sorted(RUNTIMES), "a container runtime")


def _check_ranks(name: str) -> str:
    return check_known(name, KINDS, "a way for ranks to find each other")


def _add_launchers(schema: dict[str, Any]) -> None:
    schema["enum"] = sorted(LAUNCHERS)


def _add_runtimes(schema: dict[str, Any]) -> None:
    schema["enum"] = sorted(RUNTIMES)


def _add_ranks(schema: dict[str, Any]) -> None:
    schema["enum"] = list(KINDS)


class LauncherOptions(Table):
    """What starts the ranks, and how."""

    name: Annotated[
        str, AfterValidator(_check_launcher), Field(json_schema_extra=_add_launchers)
    ] = "srun"
    """Program that starts the ranks."""
    mpi: str = "pmix"
    """Value of `srun --mpi`; "none" leaves the option out."""
    flags: OneOrMore[str] = ()
    """Further flags of the launcher, each a template over the topology; of torchrun, srun's."""
    command: str = ""
    """Words of the launcher "command", a template over the topology."""


class Rendezvous(Table):
    """The network on which ranks find each other, where it is not that of the hosts' own names."""

    host_suffix: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]*$")] = ""
    """What stands behind the short name of a host in its name on that network, such as "i"."""
    interface: Annotated[str, Field(pattern=r"^[^\s/]{0,15}$")] = ""
    """Interface, such as "ib0", whose address ranks take; NCCL and Gloo are told it too."""


FrameworkName = Annotated[str, AfterValidator(_check_framework)]
EnvTable = dict[Annotated[str, AfterValidator(check_env_name)], str]


class Container(Table):
    """An image that the ranks of a framework run in; `python` is then the one in it.

    The run directory and the data sets are mounted where they are outside, but for Shifter, which
    mounts the site's file systems itself, and for `--environment` and `--uenv`, whose files say
    what is mounted.
    """

    runtime: Annotated[str, AfterValidator(_check_runtime), Field(json_schema_extra=_add_runtimes)]
    """Program or plug-in of Slurm that starts the container."""
    image: Annotated[str, Field(min_length=1)]
    """Image, as the runtime names it."""
    options: OneOrMore[str] = ()
    """Further options of the runtime, each a template over the topology."""
    mounts: OneOrMore[str] = ()
    """Further folders to mount, as "/folder" or "/outside:/inside"."""
    entrypoint: bool = False
    """Whether the image's own start-up script runs first, in runtimes that can leave it out."""


class Environment(Table):
    """Where a framework's Python is on this site: modules first, then a virtual environment."""

    venv: Optional[
        Annotated[str, AfterValidator(make_absolute), AfterValidator(check_search_folder)]
    ] = None
    """Virtual environment of the framework."""
    python: str = "python"
    """Python of the framework, by name or path."""
    modules: OneOrMore[str] = ()
    """Modules to load first."""
    setup: OneOrMore[str] = ()
    """Lines of bash before anything else; one that fails fails the array task."""
    env: EnvTable = {}
    """Environment variables; `${NAME}` in one is expanded in the job."""
    rank_env: EnvTable = {}
    """Environment variables of the ranks alone."""
    wrapper: OneOrMore[str] = ()
    """Words between launcher and Python, or container, each a template over the topology."""
    container: Optional[Container] = None
    """Image that the ranks run in."""
    host_python: Optional[str] = None
    """Python 3.7 or newer of the batch host; without a container that of the framework will do."""


class JobSettings(Table):
    """What jobs ask for, and how ranks start in them."""

    cpus_per_rank: PositiveInt = 1
    """CPU cores of each rank; on GPUs of Slurm's nodes 8, where nothing else is said."""
    partition: Optional[str] = None
    """Partition of the jobs."""
    account: Optional[str] = None
    """Account that the jobs are charged to."""
    qos: Optional[str] = None
    """Quality of service of the jobs."""
    constraint: Optional[str] = None
    """Features that nodes must have."""
    reservation: Optional[str] = None
    """Reservation that the jobs run in."""
    gpu_request: Literal["gpus-per-node", "gres", "none"] = "gpus-per-node"
    """How a job asks for GPUs."""
    gpu_type: Optional[Annotated[str, AfterValidator(_check_gpu_type)]] = None
    """Type of GPU to ask for."""
    compute_capability: Optional[Annotated[str, Field(pattern=COMPUTE_CAPABILITY)]] = None
    """"8.0" of A100, "9.0" of H100, AMD's "gfx90a": a build without code for it is left out."""
    exclusive: bool = False
    """Whether jobs have their nodes to themselves."""
    memory_mib_per_node: Optional[Annotated[int, Field(ge=0)]] = None
    """Memory to ask for on each node, in MiB; 0 is all."""
    time_limit_minutes: dict[Annotated[str, AfterValidator(_check_topology_key)], PositiveInt] = {
        "default": 30
    }
    """Time limit of an array task, by topology or as "default"."""
    array_throttle: Optional[PositiveInt] = None
    """Array tasks of a job that may run at once."""
    tasks_per_job: PositiveInt = 1
    """Array tasks that run one after the other in a job of Slurm, each as though it had its own."""
    directives: OneOrMore[Annotated[str, AfterValidator(check_directive)]] = ()
    """Further #SBATCH lines, each a template over the topology."""
    task_request: Literal["ntasks-per-node", "ntasks"] = "ntasks-per-node"
    """How sbatch and srun are told the number of ranks."""
    setup: OneOrMore[str] = ()
    """Lines of bash that run first in each array task; one that fails fails the array task."""
    modules: OneOrMore[str] = ()
    """Modules to load next."""
    after_modules: OneOrMore[str] = ()
    """Lines of bash that run once the modules are loaded."""
    env: EnvTable = {}
    """Environment variables of all jobs; `${NAME}` in one is expanded in the job."""
    rank_env: EnvTable = {}
    """Environment variables that the ranks alone have, not the script's own commands."""
    template: Optional[Annotated[str, AfterValidator(make_absolute)]] = None
    """The site's own template of a job script."""
    node: NodeSettings = NodeSettings()
    """What is done once on each node before the ranks start."""
    launcher: LauncherOptions = LauncherOptions()
    """How ranks are started."""
    ranks: Annotated[str, AfterValidator(_check_ranks), Field(json_schema_extra=_add_ranks)] = MPI
    """How ranks find each other: by mpi4py, or over sockets as srun or torchrun places them."""
    rendezvous: Rendezvous = Rendezvous()
    """Network on which ranks find each other."""
    environments: dict[FrameworkName, Environment] = {}
    """Where frameworks' Pythons are, by framework."""

    @property
    def joining(self) -> Joining:
        """How ranks join each other, as the worker is told it."""
        return Joining(self.ranks, self.rendezvous.host_suffix, self.rendezvous.interface)

    @property
    def starting_launcher(self) -> str:
        """What starts the ranks: torchrun, which srun starts, where they are to be torchrun's."""
        is_by_torchrun = self.ranks == TORCHRUN and self.launcher.name == "srun"
        return TORCHRUN if is_by_torchrun else self.launcher.name

    def find_time_limit_minutes(self, topology: Topology) -> int:
        """The time limit of an array task: the topology's own, else the default, else 30."""
        limits = self.time_limit_minutes
        return limits.get(str(topology), limits.get("default", 30))
