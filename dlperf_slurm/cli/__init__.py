"""The command line -> an exit code; each file here declares its commands, with their handlers."""

import argparse
import os
import sys
from importlib import import_module

from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.cli.streams import (
    escape_unencodable,
    find_width,
    plain_streams,
    replace_closed_streams,
    silence_output,
)
from dlperf_slurm.program import COMMAND, PROGRAM
from dlperf_slurm.version import __version__

# no import of `typing`, which would be a tenth of --help
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Optional

HELP_OPTIONS = ("-h", "--help")

# The exit code of any program that SIGPIPE ends; a 0 might be taken for a verdict.
READER_GONE_EXIT_CODE = 141


def main(arguments: "Optional[Sequence[str]]" = None) -> int:
    """Run one command and return its exit code, which is that of an error's class or 0.

    Raises KeyboardInterrupt.
    """
    replace_closed_streams()
    escape_unencodable()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            if words and words[0] not in HELP_OPTIONS:
                with plain_streams():
                    return _run_command(words)
            make_parser(words).print_help()
        finally:
            # Python itself would write what is buffered too late for its errors to be caught
            sys.stdout.flush()
    except BrokenPipeError:
        silence_output()
        return READER_GONE_EXIT_CODE
    except OSError as error:
        # of standard output: those of a command are caught there
        from dlperf_slurm.errors import InputError

        silence_output()
        print(f"{PROGRAM}: error: standard output: {error.strerror}", file=sys.stderr)
        return InputError.exit_code
    return 0


def _run_command(words: "list[str]") -> int:
    from dlperf_slurm.errors import DlperfError, InputError

    # Pydantic looks for its plug-ins in every distribution that is installed beside this one
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        options = make_parser(words).parse_args(words)
        options.words = words
        options.handler(options)
    except DlperfError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return InputError.exit_code
    return 0


class _ListedCommand(argparse.ArgumentParser):
    """The place of a command in the list of them, without its options, which a file has."""

    def __init__(self, **of_parser: object) -> None:
        pass


def _make_formatter(prog: str) -> argparse.HelpFormatter:
    # as wide as argparse has it
    return argparse.HelpFormatter(prog, width=find_width() - 2)


def make_main_parser(program: str = COMMAND) -> argparse.ArgumentParser:
    """The parser of the words before a command."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Deep-learning benchmarks on Slurm clusters: a TOML matrix goes in, tables "
        "to defend come out.",
        epilog=f"The options of a command: {program} COMMAND --help",
        formatter_class=_make_formatter,
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def make_parser(words: "Sequence[str]") -> argparse.ArgumentParser:
    """The parser of these words: of the command among them, else of what lists all commands."""
    parser = make_main_parser()
    command = next((word for word in words if word in COMMANDS), None)
    commands = parser.add_subparsers(
        title="commands",
        metavar="COMMAND",
        required=True,
        parser_class=_ListedCommand if command is None else argparse.ArgumentParser,
    )
    if command is None:
        for name, (_, text) in COMMANDS.items():
            commands.add_parser(name, help=text)
    else:
        import_module(f"{__name__}.{COMMANDS[command][0]}").add_commands(commands)
    return parser
