"""The command completion: the parsers of all commands -> a shell's script that completes them.

The script is static: pressing TAB starts no Python. The only home of shtab.
"""

import argparse
from typing import TYPE_CHECKING, Any

from dlperf_slurm.cli.options import add_command
from dlperf_slurm.cli.whole import list_parsers, make_whole_parser

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands

SHELLS = ("bash", "zsh", "fish")
# ids of runs begin with the year
_LIST_RUNS = "ls results 2> /dev/null | grep '^2'"
_RUNS = ("run", "run_a", "run_b")
_FOLDERS = ("results", "directory")
_FILES = ("matrix", "site", "logs", "files", "plot", "junit", "csv", "parquet")


def add_commands(commands: "Commands") -> None:
    """Add `completion`."""
    command = add_command(commands, "completion", run_completion)
    command.add_argument("shell", choices=SHELLS, help="the shell that the script is for")


def run_completion(options: argparse.Namespace) -> None:
    """Print the script of a shell."""
    import shtab

    parser = make_whole_parser()
    for _, command in list_parsers(parser):
        for action in command._actions:
            completion = _find_completion(action)
            if completion is not None:
                action.complete = completion  # type: ignore[attr-defined]
    print(shtab.complete(parser, options.shell), end="")


def _find_completion(action: argparse.Action) -> Any:
    """How the values of an argument are completed, in shtab's terms; None for no way of its own."""
    import shtab

    from dlperf_slurm.provision.environments.pins import list_pins

    if action.dest in _RUNS:
        return shtab.cmd(_LIST_RUNS)
    if action.dest == "frameworks":
        return shtab.cmd(f"echo {' '.join(list_pins())}")
    if action.dest in _FOLDERS:
        return shtab.DIRECTORY
    return shtab.FILE if action.dest in _FILES else None
