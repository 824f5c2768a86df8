"""Site files and their layers -> one validated Site, and where each value came from."""

import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from pydantic import AfterValidator, Field

from dlperf_slurm import slurm_client
from dlperf_slurm.config.folders import (
    PACKAGE,
    check_search_folder,
    expand_home,
    find_managed_environment,
    find_resource_dir,
    find_user_config_dir,
)
from dlperf_slurm.config.key_paths import KeyPath
from dlperf_slurm.config.known_names import check_env_name, check_known, suggest
from dlperf_slurm.config.layers import Layer, merge_layers
from dlperf_slurm.config.toml_tables import (
    OneOrMore,
    Reporter,
    Table,
    TomlFile,
    parse_assignment,
    read_toml,
    validate,
)
from dlperf_slurm.contract.topology import Topology, parse_topology
from dlperf_slurm.errors import InputError, Problem, raise_problems
from dlperf_slurm.worker.frameworks import list_frameworks

DEFAULT_LAYER = "default"


def _check_topology_key(text: str) -> str:
    if text != "default":
        parse_topology(text)
    return text


def _check_framework(name: str) -> str:
    return check_known(name, list_frameworks(), "a framework")


# the options of sbatch that every script has, with what sets them
OWN_OPTIONS = {
    "array": "the matrix",
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


def _check_directive(line: str) -> str:
    if not line.startswith("--"):
        raise ValueError(f"{line!r} must begin with '--', as on an #SBATCH line")
    if not line.isprintable() or "\\" in line:
        raise ValueError(f"{line!r}: line breaks and backslashes cannot stand on an #SBATCH line")
    name = line[2:].partition("=")[0].partition(" ")[0]
    for own, setter in OWN_OPTIONS.items():
        # sbatch takes the beginning of an option for the option
        if name and own.startswith(name):
            raise ValueError(f"{line!r}: --{own} is set by {setter}, and by nothing else")
    return line


def _make_absolute(path: str) -> str:
    # jobs do not run in the directory that they are submitted from
    return str(expand_home(path).absolute())


PositiveInt = Annotated[int, Field(ge=1)]


def list_launchers() -> list[str]:
    """The names of the launchers, sorted.

    They are modules of a room above this one, which it cannot import.
    """
    folder = str(PACKAGE / "jobs" / "launchers")
    return sorted(module.name for module in pkgutil.iter_modules([folder]))


def _check_launcher(name: str) -> str:
    return check_known(name, list_launchers(), "a launcher")


def _add_launchers(schema: dict[str, Any]) -> None:
    schema["enum"] = list_launchers()


class LauncherOptions(Table):
    """What starts the ranks, and how."""

    name: Annotated[
        str, AfterValidator(_check_launcher), Field(json_schema_extra=_add_launchers)
    ] = "srun"
    """Program that starts the ranks."""
    mpi: str = "pmix"
    """Value of `srun --mpi`."""
    flags: OneOrMore[str] = ()
    """Further flags of the launcher."""


class Environment(Table):
    """Where a framework's Python is on this site: modules first, then a virtual environment."""

    venv: Optional[
        Annotated[str, AfterValidator(_make_absolute), AfterValidator(check_search_folder)]
    ] = None
    """Virtual environment of the framework."""
    python: str = "python"
    """Python of the framework, by name or path."""
    modules: OneOrMore[str] = ()
    """Modules to load first."""
    setup: OneOrMore[str] = ()
    """Lines of bash before anything else; one that fails fails the array task."""
    env: dict[Annotated[str, AfterValidator(check_env_name)], str] = {}
    """Environment variables."""


class Tracking(Table):
    """How often the scheduler is asked, and when a job that it does not know is given up."""

    poll_seconds: Annotated[float, Field(ge=1, strict=False)] = 30.0
    """Time between questions to the scheduler, at first."""
    slowest_poll_seconds: Annotated[float, Field(ge=1, strict=False)] = 180.0
    """Time between questions to the scheduler, at most."""
    lost_after_seconds: Annotated[float, Field(ge=1, strict=False)] = 300.0
    """Time after which a job that the scheduler does not know is given up."""


class Retry(Table):
    """How often `wait` tries an array task again by itself, by what ended it."""

    node_fail: Annotated[int, Field(ge=0, le=10)] = 2
    """Further attempts after a node failed, which is left out where it is named."""
    launch: Annotated[int, Field(ge=0, le=10)] = 1
    """Further attempts after the ranks could not be started, or a disk was full."""


class Site(Table):
    """A cluster or machine: how to ask it for nodes, and how to start ranks on them."""

    scheduler: Literal["slurm", "local"] = "slurm"
    """What starts array jobs."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Kind of device that the ranks compute on."""
    max_nodes: Optional[PositiveInt] = None
    """Nodes that a case may have at most."""
    max_devices_per_node: Optional[PositiveInt] = None
    """Devices on a node that a case may have at most."""
    cpus_per_rank: PositiveInt = 1
    """CPU cores of each rank."""
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
    gpu_type: Optional[str] = None
    """Type of GPU to ask for."""
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
    max_array_size: Optional[PositiveInt] = None
    """Array tasks of a job at most; the cluster's own where it is left out."""
    directives: OneOrMore[Annotated[str, AfterValidator(_check_directive)]] = ()
    """Further #SBATCH lines."""
    env: dict[Annotated[str, AfterValidator(check_env_name)], str] = {}
    """Environment variables of all jobs."""
    env_from: OneOrMore[Annotated[str, AfterValidator(check_env_name)]] = ()
    """Environment variables that jobs have from the one who submits; their values stay private."""
    umask: Optional[Annotated[str, Field(pattern="^0?[0-7]{3}$")]] = None
    """Permissions that files of a run lack, in octal; "077" where neither it nor a group is set."""
    group: Optional[str] = None
    """Group that may read the files of a run."""
    template: Optional[Annotated[str, AfterValidator(_make_absolute)]] = None
    """The site's own template of a job script."""
    launcher: LauncherOptions = LauncherOptions()
    """How ranks are started."""
    environments: dict[Annotated[str, AfterValidator(_check_framework)], Environment] = {}
    """Where frameworks' Pythons are, by framework."""
    datasets: dict[str, Annotated[str, AfterValidator(_make_absolute)]] = {}
    """Folders of data sets, by name."""
    tracking: Tracking = Tracking()
    """How often the scheduler is asked."""
    retry: Retry = Retry()
    """What is tried again without being asked."""

    @property
    def file_mask(self) -> int:
        """The umask of a run's files: what `umask` says, else no one but a `group` may read."""
        return int(self.umask or ("027" if self.group else "077"), 8)

    def find_time_limit_minutes(self, topology: Topology) -> int:
        """The time limit of an array task: the topology's own, else the default, else 30."""
        limits = self.time_limit_minutes
        return limits.get(str(topology), limits.get("default", 30))

    def find_dataset_dir(self, name: str) -> str:
        """The folder of a data set's files: what `[datasets]` says, else data/NAME from here."""
        return self.datasets.get(name) or _make_absolute(f"data/{name}")

    def find_environment(self, framework: str) -> Environment:
        """The site's own environment for a framework, else the one that `env create` makes."""
        named = self.environments.get(framework)
        if named is not None and (named.venv or named.modules or named.python != "python"):
            return named
        managed = str(find_managed_environment(framework))
        return (named or Environment()).model_copy(update={"venv": managed})


@dataclass(frozen=True)
class LoadedSite:
    """A site ready for use: its name, its values, and the layer of each value."""

    name: str
    site: Site
    sources: dict[KeyPath, str]


def list_site_dirs() -> list[Path]:
    """The folders in which a site's name is looked up, in this order."""
    user = find_user_config_dir() / "site_configs"
    return [Path("site_configs"), user, find_resource_dir("site_configs")]


def find_site_file(name: str) -> Optional[Path]:
    """The file of a site's name, or of a path to a TOML file; None when there is none."""
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    candidates = (folder / f"{name}.toml" for folder in list_site_dirs())
    return next((path for path in candidates if path.is_file()), None)


def choose_site_file(requested: Optional[str]) -> Path:
    """The file of the requested site.

    Without a request it is the file named after this cluster, else `slurm` where Slurm is, else
    `local`. Raises InputError for an unknown site, or when the shipped files are missing.
    """
    if requested is not None:
        path = find_site_file(requested)
        if path is None:
            known = sorted({p.stem for folder in list_site_dirs() for p in folder.glob("*.toml")})
            raise InputError(
                f"--site {requested}: no such site; known: {', '.join(known)}"
                f"{suggest(requested, known)}"
            )
        return path
    cluster_name = slurm_client.find_cluster_name()
    path = find_site_file(cluster_name) if cluster_name else None
    path = path or find_site_file("slurm" if slurm_client.is_slurm_here() else "local")
    if path is None:
        raise InputError(
            "the site configs that ship with the package are missing: install it again"
        )
    return path


def load_site(
    requested: Optional[str], matrix: Optional[TomlFile], assignments: Sequence[str]
) -> LoadedSite:
    """Read all layers and validate what they add up to.

    Raises InputError with every mistake of every layer, each with its file and line.
    """
    path = choose_site_file(requested)
    layers = [Layer(read_toml(path))]
    user_file = find_user_config_dir() / "config.toml"
    if user_file.is_file():
        layers.append(Layer(read_toml(user_file)))
    if matrix is not None and isinstance(matrix.data.get("slurm"), dict):
        layers.append(Layer(matrix, ("slurm",)))
    layers.extend(Layer(parse_assignment(text)) for text in assignments)

    raise_problems([problem for layer in layers for problem in find_layer_problems(layer)])
    merged, sources = merge_layers(layers)
    reporter = Reporter(TomlFile(str(path), "", merged))
    site = validate(Site, merged, reporter)
    raise_problems(reporter.problems)
    assert site is not None, "layers that are valid one by one are valid together"
    return LoadedSite(path.stem, site, sources)


def find_layer_problems(layer: Layer) -> list[Problem]:
    """The mistakes of one layer of a site's settings."""
    reporter = Reporter(layer.toml, layer.prefix)
    validate(Site, layer.data, reporter)
    return reporter.problems


def list_effective_values(loaded: LoadedSite) -> list[tuple[str, Any, str]]:
    """Every setting as (key, value, layer), defaults included."""
    rows: list[tuple[str, Any, str]] = []
    _flatten(loaded.site.model_dump(mode="json"), (), loaded.sources, rows)
    return rows


def _flatten(
    value: Any, path: KeyPath, sources: dict[KeyPath, str], rows: list[tuple[str, Any, str]]
) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _flatten(item, (*path, key), sources, rows)
    else:
        rows.append((".".join(map(str, path)), value, sources.get(path, DEFAULT_LAYER)))
