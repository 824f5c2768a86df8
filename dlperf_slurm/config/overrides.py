"""A site's [[override]] tables and a kind of job -> the settings of the job."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, Union

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from dlperf_slurm.config.bounds import parse_bound
from dlperf_slurm.config.job_settings import FrameworkName, JobSettings
from dlperf_slurm.config.toml_tables import OneOrMore, TomlFile, TomlModel, TomlTable
from dlperf_slurm.contract.axes import Axes
from dlperf_slurm.contract.topology import PATTERN, Topology, parse_topology

OVERRIDE = "override"
WHEN = "when"

SomeTable = TypeVar("SomeTable", bound=TomlModel)


@dataclass(frozen=True, order=True)
class JobKind:
    """A kind of job: the values of a case that select the [[override]] tables of its site."""

    framework: str
    gradient_sync: str
    topology: Topology


def get_job_kind(axes: Axes) -> JobKind:
    """Return the kind of job (framework, gradient_sync, topology) of a case with these axes."""
    return _make_kind(axes.framework, axes.gradient_sync, axes.topology)


@cache
def _make_kind(framework: str, gradient_sync: str, topology: str) -> JobKind:
    """Make a JobKind from these axis values; cached, as thousands of cases share a few kinds."""
    return JobKind(framework, gradient_sync, parse_topology(topology))


def _check_topology(text: str) -> str:
    parse_topology(text)
    return text


def _check_bound(value: Any) -> Any:
    parse_bound(value)
    return value


_Bound = Annotated[
    Union[int, str], BeforeValidator(_check_bound), WithJsonSchema({"type": ["integer", "string"]})
]


class SiteCondition(TomlModel):
    """A condition of an [[override]] table: one or more values for each key; "<8" for numbers."""

    topology: OneOrMore[
        Annotated[
            str,
            AfterValidator(_check_topology),
            WithJsonSchema({"type": "string", "pattern": f"^{PATTERN}$"}),
        ]
    ] = ()
    """Topology of a case, such as "2n8g"."""
    nodes: OneOrMore[_Bound] = ()
    """Number of nodes of a case."""
    devices_per_node: OneOrMore[_Bound] = ()
    """Number of devices on each node of a case."""
    world_size: OneOrMore[_Bound] = ()
    """Number of devices of a case; there is one rank per device."""
    framework: OneOrMore[FrameworkName] = ()
    """Framework of a case."""
    gradient_sync: OneOrMore[str] = ()
    """How gradients are summed over the ranks: "native", "horovod" and others."""

    def holds(self, kind: JobKind) -> bool:
        """Return whether a kind of job meets the condition of an [[override]] table."""
        size = kind.topology
        texts = {**vars(kind), "topology": str(size)}
        return all(
            texts[key] in getattr(self, key)
            if key in texts
            else any(parse_bound(one).holds(getattr(size, key)) for one in getattr(self, key))
            for key in self.model_fields_set
        )


class SiteOverride(JobSettings):
    """Other settings for the jobs that `when` describes; tables are merged key by key."""

    when: SiteCondition
    """Condition: the table is for jobs whose case has these settings."""


def overlay(base: SomeTable, change: TomlModel) -> SomeTable:
    """Return `base` with the settings that `change` sets; tables are merged key by key."""
    names = change.model_fields_set - {WHEN}
    update = {name: _overlay_value(getattr(base, name), getattr(change, name)) for name in names}
    return base.model_copy(update=update)


def _overlay_value(base: Any, change: Any) -> Any:
    if isinstance(change, TomlModel):
        return overlay(base, change)
    if isinstance(change, Mapping):
        changed = {
            key: _overlay_value(base[key], value) if key in base else value
            for key, value in change.items()
        }
        return {**base, **changed}
    return change


def collect_overrides(layers: Sequence[TomlFile]) -> list[TomlTable]:
    """Return the [[override]] tables of all layers in order, without keys that a later layer sets.

    A later layer's plain settings thus win over the overrides of earlier layers.
    """
    collected: list[TomlTable] = []
    for index, layer in enumerate(layers):
        tables = layer.table.get(OVERRIDE, [])
        for table in tables if isinstance(tables, list) else [tables]:
            kept = copy.deepcopy(table)
            for later in layers[index + 1 :]:
                plain = {key: v for key, v in later.table.items() if key not in (OVERRIDE, WHEN)}
                _drop_keys(kept, plain)
            if kept.keys() - {WHEN}:
                collected.append(kept)
    return collected


def _drop_keys(table: TomlTable, keys: TomlTable) -> None:
    """Remove from `table`, in place, the keys that are in `keys` too; nested tables by key."""
    for key in table.keys() & keys.keys():
        if isinstance(table[key], dict) and isinstance(keys[key], dict):
            _drop_keys(table[key], keys[key])
        if not table[key] or not isinstance(table[key], dict):
            del table[key]
