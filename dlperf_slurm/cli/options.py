"""Parsers of commands, and the options that several commands share."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # argparse's class is generic only in typeshed
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Handler = Callable[[argparse.Namespace], None]


def add_command(
    commands: "Commands", name: str, text: str, handler: "Handler"
) -> argparse.ArgumentParser:
    """The parser of a new command; `text` stands in the list of commands and above its options."""
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.set_defaults(handler=handler)
    return command


def add_actions(commands: "Commands", name: str, text: str, metavar: str = "ACTION") -> "Commands":
    """The actions of a new command that does nothing without one, as `env` and `config`."""
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return command.add_subparsers(title=f"{metavar.lower()}s", metavar=metavar, required=True)


def add_site_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a site and set single values of it for this call."""
    parser.add_argument(
        "--site", help="site file or its name; default: this cluster's name, else slurm or local"
    )
    add_set_option(parser)


def add_set_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that sets single values of a site."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="set one site value"
    )


def add_results_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where runs lie."""
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="folder of the runs (results)"
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names a run, by default the latest, and where runs lie."""
    parser.add_argument(
        "run", nargs="?", help="run directory, run id or its beginning; default: the latest"
    )
    add_results_option(parser)
