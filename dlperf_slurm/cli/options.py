"""Parsers of commands, and options that several commands share."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.cli.streams import find_width
from dlperf_slurm.program import LATEST, find_results_dir

if TYPE_CHECKING:
    from dlperf_slurm.jobs.run_directory import Run

    # argparse's class is generic only for type checkers
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Handler = Callable[[argparse.Namespace], None]


RUN_HELP = (
    f"run directory, run id or its beginning, {LATEST}, or {LATEST}~1 for the run before the latest"
)


def add_command(
    commands: "Commands", name: str, handler: "Optional[Handler]", text: str = ""
) -> argparse.ArgumentParser:
    """Add a command, or an action of one such as `env create`, and return its parser.

    `text` is the help text, above the options and in the list; by default that of COMMANDS.
    """
    text = text or COMMANDS[name][1]
    command = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        formatter_class=_make_formatter,
    )
    command.set_defaults(handler=handler)
    return command


def _make_formatter(prog: str) -> argparse.HelpFormatter:
    # argparse's default width, but computed without importing `shutil`, which is slow
    return argparse.RawDescriptionHelpFormatter(prog, width=find_width() - 2)


def add_actions(
    commands: "Commands", name: str, text: str = "", metavar: str = "ACTION"
) -> "Commands":
    """Add a command that requires an action (`env create`); return what to add actions to."""
    command = add_command(commands, name, None, text)
    return command.add_subparsers(title=f"{metavar.lower()}s", metavar=metavar, required=True)


def add_site_options(parser: argparse.ArgumentParser) -> None:
    """Add --site, which chooses a site, and --set, which overrides single values of it."""
    parser.add_argument(
        "--site",
        default=os.environ.get("DLPERF_SLURM_SITE") or None,
        help="name or file of the site; default: $DLPERF_SLURM_SITE, else the site with the name "
        "of this cluster, else slurm, or local if this machine has no Slurm. To submit without "
        "Slurm, give --site local",
    )
    add_set_option(parser)


def add_set_option(
    parser: argparse.ArgumentParser,
    text: str = "set one value of the site, or of the matrix: protocol.repeats=3",
) -> None:
    """Add the option --set, for values of a site or matrix; `text` is its help text."""
    add_repeated_option(parser, "--set", "KEY=VALUE", text)


def add_repeated_option(
    parser: argparse.ArgumentParser, option: str, metavar: str, text: str
) -> None:
    """Add an option that may be given several times; its value is the list of all values, or []."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, help=text)


def add_json_option(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    """Add the option --json."""
    parser.add_argument("--json", action="store_true", help=text)


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options --json, to print JSON, and --plot, which names a file to draw a plot to."""
    add_json_option(parser)
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw a plot to this .svg, .pdf or .png file"
    )


def add_ci_options(parser: argparse.ArgumentParser) -> None:
    """Add the options --junit and --github, which report the result of each case to a CI system."""
    parser.add_argument(
        "--junit", type=Path, metavar="FILE", help="write a JUnit report for a CI system"
    )
    text = "print annotations for GitHub Actions, and add the table to $GITHUB_STEP_SUMMARY"
    parser.add_argument("--github", action="store_true", help=text)


def add_results_option(parser: argparse.ArgumentParser) -> None:
    """Add --results, the folder that contains the run directories."""
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(find_results_dir()),
        help="folder that contains the runs (default: $DLPERF_SLURM_RESULTS, else results)",
    )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the argument RUN, by default the latest, and --results, the folder of the runs."""
    parser.add_argument("run", nargs="?", metavar="RUN", help=f"{RUN_HELP}; default: latest")
    add_results_option(parser)


def find_chosen_run(options: argparse.Namespace) -> "Run":
    """Return the run that the arguments RUN and --results choose; raises InputError for none."""
    from dlperf_slurm.jobs.run_directory import find_run

    return find_run(options.run, options.results)
