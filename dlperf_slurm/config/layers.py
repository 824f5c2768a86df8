"""Layers of settings -> one merged table, and the layer that each value is from."""

from collections.abc import Sequence
from dataclasses import dataclass

from dlperf_slurm.config.key_paths import KeyPath, format_key
from dlperf_slurm.config.toml_tables import TomlFile, TomlTable


@dataclass(frozen=True)
class SettingsLayer:
    """One source of settings: a file, a table of a file (`prefix`), or an option `--set`."""

    toml: TomlFile
    prefix: KeyPath = ()

    @property
    def data(self) -> TomlTable:
        """The settings of this layer: the table at `prefix`, or an empty table."""
        value: TomlTable = self.toml.data
        for part in self.prefix:
            value = value.get(str(part), {})
        return value

    @property
    def name(self) -> str:
        """The name of the layer in messages and listings, such as `matrix.toml [slurm]`."""
        return self.toml.label + (f" [{format_key(self.prefix)}]" if self.prefix else "")


def merge_layers(layers: Sequence[SettingsLayer]) -> tuple[TomlTable, dict[KeyPath, str]]:
    """Merge layers of settings key by key; a later layer wins.

    Returns the merged table, and the name of the layer that each value came from, by key path.
    """
    merged: TomlTable = {}
    sources: dict[KeyPath, str] = {}
    for layer in layers:
        _merge(merged, layer.data, layer.name, (), sources)
    return merged, sources


def _merge(
    into: TomlTable, data: TomlTable, name: str, path: KeyPath, sources: dict[KeyPath, str]
) -> None:
    """Merge `data` into the table `into`, in place, and add its layer's `name` to `sources`."""
    for key, value in data.items():
        here = (*path, key)
        if isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            _merge(into[key], value, name, here, sources)
        else:
            into[key] = value
            sources[here] = name
