"""Layers of site settings -> one validated Site, and the layer of each value."""

import copy
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    field_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from dlperf_slurm import slurm_client
from dlperf_slurm.config.folders import (
    CUDA,
    expand_home,
    find_managed_environment,
    find_resource_dir,
    find_stranger,
    find_user_config_dir,
    get_environment_name,
    list_system_config_dirs,
)
from dlperf_slurm.config.job_settings import Environment, JobSettings, PositiveInt, make_absolute
from dlperf_slurm.config.key_paths import KeyPath
from dlperf_slurm.config.overrides import (
    OVERRIDE,
    JobKind,
    SiteOverride,
    collect_overrides,
    overlay,
)
from dlperf_slurm.config.suggestions import check_env_name, check_inherited, suggest
from dlperf_slurm.config.toml_tables import (
    OneOrMore,
    OneOrMoreTables,
    ProblemCollector,
    TomlFile,
    TomlModel,
    TomlTable,
    merge_layers,
    parse_assignment,
    read_toml,
    validate,
    validate_file,
)
from dlperf_slurm.errors import InputError, Problem, raise_problems

# an absolute path, or a path below a folder named by an environment variable
_NODE_PATH = re.compile(r"/.+|\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)/.+", re.ASCII)


def _check_node_path(path: str) -> str:
    if _NODE_PATH.fullmatch(path) is None:
        raise ValueError(
            f"{path!r} is not an absolute path; allowed: a path that begins with '/' or a "
            "variable, as '$SLURM_TMPDIR/x' does"
        )
    if ".." in path.split("/"):
        raise ValueError(f"{path!r}: '..' is not allowed; write the path without it")
    return path


class DatasetLocation(TomlModel):
    """Location of a data set's files."""

    path: Optional[Annotated[str, AfterValidator(make_absolute)]] = None
    """Folder of the data set, or with `stage_to` a tar archive of it; default: data/NAME."""
    stage_to: Optional[Annotated[str, AfterValidator(_check_node_path)]] = None
    """Folder on each node to copy the data set to, and read it from: "$SLURM_TMPDIR/imagenet"."""
    on_login_node: bool = True
    """Whether the login node can see `path`; if not, `path` is not checked before the job runs."""


def spell_out_paths(settings: TomlTable) -> None:
    """Replace data sets given as a path by tables, in place: later layers can add keys."""
    datasets = settings.get("datasets")
    if isinstance(datasets, dict):
        datasets.update({name: _read_plain_path(value) for name, value in datasets.items()})


def _read_plain_path(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


class _AllowsPath:
    """Metadata for the JSON Schema: a path is allowed in place of the table."""

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


# a table, or the path alone
DatasetOrPath = Annotated[DatasetLocation, BeforeValidator(_read_plain_path), _AllowsPath()]


DEFAULT_LAYER = "default"
# site files of the working directory
_HERE = Path("site_configs")


class Tracking(TomlModel):
    """Polling intervals, and the grace period of a job that Slurm does not know."""

    poll_seconds: Annotated[float, Field(ge=1, strict=False)] = 30.0
    """Shortest time between two polls of the queue."""
    slowest_poll_seconds: Annotated[float, Field(ge=1, strict=False)] = 180.0
    """Longest time between two polls of the queue."""
    lost_after_seconds: Annotated[float, Field(ge=1, strict=False)] = 300.0
    """Time after which a job that Slurm no longer knows is declared LOST."""


# default cores of a rank with a GPU: NCCL, data loaders and autograd need threads beside Python
CPUS_PER_GPU = 8


class Retry(TomlModel):
    """How often `wait` retries an array task, by cause."""

    node_fail: Annotated[int, Field(ge=0, le=10)] = 2
    """Retries after a node failed or was UNHEALTHY; the node is excluded, if its name is known."""
    launch: Annotated[int, Field(ge=0, le=10)] = 1
    """Retries after the ranks could not be started, or a disk was full."""
    preempted: Annotated[int, Field(ge=0, le=10)] = 2
    """Retries after Slurm preempted the job and did not requeue it."""


class Site(JobSettings):
    """A cluster or machine: how to request nodes, and how to start ranks on them."""

    scheduler: Literal["slurm", "local"] = "slurm"
    """What runs the array jobs: Slurm, or this machine without a scheduler."""
    device: Literal["cuda", "cpu"] = "cuda"
    """Device of each rank: a GPU, or CPU cores."""
    max_nodes: Optional[PositiveInt] = None
    """Largest number of nodes of a case; cases with more are left out."""
    max_devices_per_node: Optional[PositiveInt] = None
    """Largest number of devices per node of a case; cases with more are left out."""
    max_array_size: Optional[PositiveInt] = None
    """Largest number of tasks of an array job; default: the cluster's MaxArraySize."""
    arrays: bool = True
    """Whether to submit array jobs; if false, plain jobs of `tasks_per_job` repeats each."""
    max_submitted: Optional[PositiveInt] = None
    """Largest number of your jobs in the queue; each array task counts as one job."""
    clusters: Optional[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]] = None
    """Cluster of the jobs (`--clusters`); default: SLURM_CLUSTERS, or this host's cluster."""
    inherit: OneOrMore[Annotated[str, AfterValidator(check_inherited)]] = ()
    """SBATCH_ variables of your shell that sbatch may read, such as "SBATCH_ACCOUNT"."""
    env_from: OneOrMore[Annotated[str, AfterValidator(check_env_name)]] = ()
    """Environment variables of your shell to pass to the jobs; only you can read their values."""
    umask: Optional[Annotated[str, Field(pattern="^0?[0-7]{3}$")]] = None
    """Umask of a run's files, in octal; default: "077", or "027" if `group` is set."""
    group: Optional[str] = None
    """Unix group that may read the files of a run."""
    datasets: dict[str, DatasetOrPath] = {}
    """Data sets by name: for each a table of settings, or only the path of its folder."""
    tracking: Tracking = Tracking()
    """How often to poll the queue, and when a missing job counts as LOST."""
    retry: Retry = Retry()
    """Largest number of automatic retries of an array task, by cause."""
    override: OneOrMoreTables[SiteOverride] = ()
    """Other settings for jobs that `when` selects; if several tables match, the last one wins."""

    @model_validator(mode="before")
    @classmethod
    def _set_defaults_of_scheduler(cls, data: Any) -> Any:
        """Set the defaults of `cpus_per_rank` for GPUs on Slurm, and of a launcher without it."""
        if not isinstance(data, dict):
            return data
        if data.get("scheduler", "slurm") != "slurm":
            launcher = data.get("launcher", {})
            is_table = isinstance(launcher, dict)
            return {**data, "launcher": {"name": "mpirun", **launcher}} if is_table else data
        return {"cpus_per_rank": CPUS_PER_GPU, **data} if data.get("device", CUDA) == CUDA else data

    @field_serializer("override")
    def _write_what_is_set(self, overrides: tuple[SiteOverride, ...]) -> list[dict[str, Any]]:
        # defaults are left out, as they would count as settings when the file is read again
        return [o.model_dump(mode="json", exclude_unset=True) for o in overrides]

    def resolve(self, kind: JobKind) -> "Site":
        """Return the site for a kind of job: matching [[override]] tables applied, none left."""
        site = self
        for override in self.override:
            if override.when.holds(kind):
                site = overlay(site, override)
        return site.model_copy(update={OVERRIDE: ()}) if self.override else self

    def resolve_each(self, kinds: Iterable[JobKind]) -> dict[JobKind, "Site"]:
        """Return the site resolved for each kind of job (see `resolve`), by kind."""
        return {kind: self.resolve(kind) for kind in sorted(set(kinds))}

    def find_environment(self, framework: str) -> Environment:
        """Return the site's environment of a framework, else the one that `env create` makes."""
        named = self.environments.get(framework)
        if named is not None and (
            named.venv or named.modules or named.container or named.python != "python"
        ):
            return named
        managed = find_managed_environment(get_environment_name(framework, self.device))
        return (named or Environment()).model_copy(update={"venv": str(managed)})

    @property
    def file_mask(self) -> int:
        """Return the umask of a run's files: the site's, else 027 with a `group`, 077 without."""
        return int(self.umask or ("027" if self.group else "077"), 8)

    def find_dataset(self, name: str) -> DatasetLocation:
        """Return a data set's place by `[datasets]`, else data/NAME in the working directory."""
        named = self.datasets.get(name, DatasetLocation())
        if named.path is not None:
            return named
        return named.model_copy(update={"path": make_absolute(f"data/{name}")})

    def find_dataset_path(self, name: str) -> str:
        """Return the folder or archive of a data set, as in `find_dataset`; it may not exist.

        Without a path in `[datasets]` it is data/NAME in the working directory.
        """
        return str(self.find_dataset(name).path)


@dataclass(frozen=True)
class LoadedSite:
    """A site with its name: the merged settings, and the layer that each value is from."""

    name: str
    site: Site
    sources: dict[KeyPath, str]


def list_site_dirs() -> list[Path]:
    """Return the folders that are searched for site files, in this order.

    They are the `site_configs` folders of the working directory, the user, all users of the
    machine and the package, then the package's folder of machines known by name.
    """
    configured = [find_user_config_dir(), *list_system_config_dirs()]
    shipped = find_resource_dir("site_configs")
    return [_HERE, *(path / "site_configs" for path in configured), shipped, shipped / "machines"]


def find_site_file(name: str) -> Optional[Path]:
    """Return the file of a site, given by path, or by a name such as "local"; None if unknown.

    A path is returned even if the file is missing. Raises InputError if a name finds a file of the
    working directory that belongs to another user, whose lines would run in this user's jobs.
    """
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    candidates = (folder / f"{name}.toml" for folder in list_site_dirs())
    path = next((path for path in candidates if path.is_file()), None)
    shipped = find_resource_dir(_HERE.name)
    if path is not None and path.parent == _HERE:
        is_shipped = shipped.is_dir() and shipped.samefile(_HERE)
        owner = "" if is_shipped else find_stranger(_HERE, path)
        if owner:
            raise InputError(
                f"{path}: belongs to user {owner}, and its commands would run in your jobs; "
                f"read the file, and give its path if you trust it: --site {path}"
            )
    return path


def choose_site_file(requested: Optional[str]) -> Path:
    """Return the file of the site that `--site` names (`requested`).

    Without --site, it is the file named after this cluster, else `slurm` if Slurm is installed,
    else `local`. Raises InputError for an unknown site, or if the shipped files are missing.
    """
    if requested is not None:
        path = find_site_file(requested)
        if path is None:
            known = sorted({p.stem for folder in list_site_dirs() for p in folder.glob("*.toml")})
            raise InputError(
                f"--site {requested}: not a site file or a known site; known: "
                f"{', '.join(known)}{suggest(requested, known)}"
            )
        return path
    cluster_name = slurm_client.find_cluster_name()
    path = find_site_file(cluster_name) if cluster_name else None
    path = path or find_site_file("slurm" if slurm_client.is_slurm_here() else "local")
    if path is None:
        raise InputError("the site files of the package are missing; reinstall dlperf-slurm")
    return path


def explain_choice(requested: Optional[str]) -> str:
    """Return the chosen site file, and why it was chosen; raises as `choose_site_file`."""
    path = choose_site_file(requested)
    if requested is not None:
        is_default = requested == os.environ.get("DLPERF_SLURM_SITE")
        return f"{path}, chosen by {'DLPERF_SLURM_SITE' if is_default else '--site'}"
    if path.stem == slurm_client.find_cluster_name():
        return f"{path}, which has the name of this cluster"
    if slurm_client.is_slurm_here():
        return f"{path}, as no site file has the name of this cluster"
    return f"{path}, as this machine has no Slurm"


def load_site(
    requested: Optional[str], matrix: Optional[TomlFile], assignments: Sequence[str]
) -> LoadedSite:
    """Read, merge and validate the site file, the user's file, the matrix's [slurm] and `--set`.

    `requested` is the name or path after `--site`, `assignments` the words after `--set`. Raises
    InputError with every mistake of every layer, each with its file and line.
    """
    path = choose_site_file(requested)
    site_file = read_toml(path)
    if site_file.data.keys() & {"model", "axes"}:
        raise InputError(f"{path}: is a matrix, not a site file; give it in place of MATRIX")
    layers = [_resolve_paths(site_file)]
    user_file = find_user_config_dir() / "config.toml"
    if user_file.is_file():
        layers.append(_resolve_paths(read_toml(user_file)))
    if matrix is not None and isinstance(matrix.data.get("slurm"), dict):
        layers.append(_resolve_paths(replace(matrix, prefix=("slurm",))))
    layers.extend(map(_parse_setting, assignments))

    merged, sources = merge_site_layers(layers)
    cluster = slurm_client.find_shell_cluster(os.environ)
    if cluster and "clusters" not in merged and merged.get("scheduler", "slurm") == "slurm":
        merged["clusters"] = cluster
        sources["clusters",] = "SLURM_CLUSTERS"
    site = validate_file(Site, TomlFile(str(path), "", merged))
    return LoadedSite(path.stem, site, sources)


def read_frozen_site(path: Path) -> Site:
    """Read the effective site that a run was staged with; raises InputError if it is invalid."""
    return validate_file(Site, read_toml(path))


def _resolve_paths(file: TomlFile) -> TomlFile:
    """Return a site's layer with absolute paths of templates, and each data set as a table."""
    layer = replace(file, data=copy.deepcopy(file.data))
    settings = layer.table
    spell_out_paths(settings)
    overrides = settings.get(OVERRIDE, [])
    for table in [settings, *(overrides if isinstance(overrides, list) else [overrides])]:
        template = table.get("template") if isinstance(table, dict) else None
        if isinstance(template, str):
            own = expand_home(template)
            table["template"] = str(Path(file.label).absolute().parent / own)
    return layer


def _parse_setting(text: str) -> TomlFile:
    """Parse a word after `--set`; raises InputError for `override`, which is only for files."""
    file = parse_assignment(text)
    if OVERRIDE in file.data:
        raise InputError(
            f"--set {OVERRIDE}: [[override]] is only for files: a site file, your user file, or "
            "[slurm] of a matrix; --set KEY=VALUE already wins over [[override]]"
        )
    spell_out_paths(file.data)
    return file


def merge_site_layers(layers: Sequence[TomlFile]) -> tuple[TomlTable, dict[KeyPath, str]]:
    """Merge a site's layers as `merge_layers` does; raise InputError with all their mistakes."""
    raise_problems([problem for layer in layers for problem in find_layer_problems(layer)])
    merged, sources = merge_layers(layers)
    merged[OVERRIDE] = collect_overrides(layers)
    return merged, sources


def find_layer_problems(layer: TomlFile) -> list[Problem]:
    """Return the mistakes in one layer of a site's settings, such as unknown keys."""
    reporter = ProblemCollector(layer)
    validate(Site, layer.table, reporter)
    return reporter.problems


def list_effective_values(loaded: LoadedSite) -> list[tuple[str, Any, str]]:
    """Return all settings as (key, value, name of the layer), defaults included."""
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
