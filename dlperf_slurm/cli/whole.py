"""All files that declare commands -> one parser of them all, for what describes every command."""

import argparse
from collections.abc import Iterator
from importlib import import_module

from dlperf_slurm.cli import make_main_parser
from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.program import PROGRAM


def make_whole_parser() -> argparse.ArgumentParser:
    """The parser of `dlperf-slurm` with all commands, which takes every file that declares one."""
    parser = make_main_parser(PROGRAM)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for file in dict.fromkeys(file for file, _ in COMMANDS.values()):
        import_module(f"dlperf_slurm.cli.{file}").add_commands(commands)
    return parser


def list_parsers(
    parser: argparse.ArgumentParser,
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The parsers of commands and of their actions, each with what the lists above say of it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield texts[name], command
                yield from list_parsers(command)
