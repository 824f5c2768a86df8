"""The command completion, and the parser of all commands, which the manual page also uses.

The script for a shell is static: pressing TAB starts no Python. Only this module imports shtab.
"""

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dlperf_slurm.cli import make_main_parser
from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.cli.options import add_command
from dlperf_slurm.program import PROGRAM

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands

SHELLS = ("bash", "zsh", "fish")
# run ids begin with the year, so with 2; fish would expand a "$" when it reads the script
_LIST_RUNS = (
    "sh -c '(printenv DLPERF_SLURM_RESULTS || echo results) | xargs -I % ls % 2> /dev/null "
    "| grep ^2; echo latest'"
)
_RUNS = ("run", "run_a", "run_b", "runs")
_FOLDERS = ("results", "directory")
_FILES = (
    *("matrix", "matrix_b", "site", "logs", "files"),
    *("plot", "junit", "csv", "parquet", "reference"),
)


def add_commands(commands: "Commands") -> None:
    """Add the command `completion` to the parser."""
    command = add_command(commands, "completion", run_completion)
    command.add_argument("shell", choices=SHELLS, help="shell that the completion script is for")


def run_completion(options: argparse.Namespace) -> None:
    """Print the script that completes commands and options in a shell, such as bash."""
    import shtab

    parser = make_full_parser()
    for _, command in list_parsers(parser):
        for action in command._actions:
            completion = _find_completion(action)
            if completion is not None:
                action.complete = completion  # type: ignore[attr-defined]
    print(shtab.complete(parser, options.shell), end="")


def _find_completion(action: argparse.Action) -> Any:
    """Return how a shell completes an argument's value, such as by file names; None for not at all.

    `action` is the argument; the result is in shtab's terms.
    """
    import shtab

    from dlperf_slurm.provision.environments.pins import list_pins

    if action.dest in _RUNS:
        return shtab.cmd(_LIST_RUNS)
    if action.dest == "frameworks":
        return shtab.cmd(f"echo {' '.join(list_pins())}")
    if action.dest in _FOLDERS:
        return shtab.DIRECTORY
    return shtab.FILE if action.dest in _FILES else None


def make_full_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands; imports every file that declares one."""
    parser = make_main_parser(PROGRAM)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for file in dict.fromkeys(file for file, _ in COMMANDS.values()):
        import_module(f"dlperf_slurm.cli.{file}").add_commands(commands)
    return parser


def list_parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the help text and the parser of each command, and of actions such as `env create`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield texts[name], command
                yield from list_parsers(command)
