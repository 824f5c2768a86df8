"""The command config: the settings in force, and what may stand in the files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_actions, add_command, add_site_options
from dlperf_slurm.cli.output import make_console

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add `config show` and `config schema`."""
    actions = add_actions(commands, "config", "show the settings in force, and the schema of files")
    text = "every value and the layer that it came from"
    action = add_command(actions, "show", text, run_config_show)
    action.add_argument("matrix", nargs="?", type=Path, help="a matrix, for its [slurm] table")
    add_site_options(action)
    text = "JSON Schema of a file, for editors"
    action = add_command(actions, "schema", text, run_config_schema)
    action.add_argument("file", choices=("matrix", "site"))


def run_config_show(options: argparse.Namespace) -> None:
    from dlperf_slurm.config.site import list_effective_values, load_site
    from dlperf_slurm.config.toml_tables import read_toml
    from dlperf_slurm.reports.terminal import print_table

    matrix = read_toml(options.matrix) if options.matrix else None
    loaded = load_site(options.site, matrix, options.set)
    rows = [
        [key, "-" if value is None else repr(value), source]
        for key, value, source in list_effective_values(loaded)
    ]
    print_table(
        ["key", "value", "layer"],
        rows,
        make_console(),
        title=f"site {loaded.name}",
        text_columns=None,
    )


def run_config_schema(options: argparse.Namespace) -> None:
    import json

    from dlperf_slurm.config.site import Site
    from dlperf_slurm.matrix.file import Matrix

    kind = Matrix if options.file == "matrix" else Site
    print(json.dumps(kind.model_json_schema(), indent=1))
