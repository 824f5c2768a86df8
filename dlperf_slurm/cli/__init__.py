"""The command line -> an exit code; each file here declares its commands, with their handlers."""

import argparse
import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

from dlperf_slurm.cli import streams
from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.program import COMMAND, PROGRAM
from dlperf_slurm.version import __version__

# `typing` is not imported: it would take a tenth of the time of --help
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Optional

HELP_OPTIONS = ("-h", "--help")

# 128 + SIGPIPE, as a shell reports it; 0 could be mistaken for a passed check.
READER_GONE_EXIT_CODE = 141


def main(arguments: "Optional[Sequence[str]]" = None) -> int:
    """Run a command line (`arguments`; default: sys.argv) and return its exit code.

    The code is 0, that of the error's class, or 141 if the reader of standard output has ended.
    Raises KeyboardInterrupt, and SystemExit for --help, --version and a wrong command line.
    """
    streams.replace_closed_streams()
    streams.escape_unencodable()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        try:
            if words and words[0] not in HELP_OPTIONS:
                with streams.plain_streams():
                    return _run_command(words)
            make_parser(words).print_help()
        finally:
            # Python's own flush at exit would be too late to catch its errors
            sys.stdout.flush()
    except BrokenPipeError:
        streams.silence_output()
        return READER_GONE_EXIT_CODE
    except OSError as error:
        # an error of standard output: those of a command are caught in _run_command
        from dlperf_slurm.errors import InputError

        streams.silence_output()
        reason = f"cannot write to standard output: {error.strerror}"
        print(f"{PROGRAM}: error: {reason}", file=sys.stderr)
        return InputError.exit_code
    return 0


def _run_command(words: "list[str]") -> int:
    """Run the command that the words name; return its exit code, 0 or that of the error."""
    from dlperf_slurm.errors import DlperfError, InputError

    # Pydantic would search every installed distribution for plug-ins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        options = _parse(words)
        options.words = words
        if PathFinder.find_spec("msgspec") is None:
            # fail now: a command that needs no library yet could report something else as missing
            import_module("msgspec")
        options.handler(options)
    except DlperfError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = str(error)
        if isinstance(error, PermissionError) and error.filename:
            from pathlib import Path

            from dlperf_slurm.config.folders import describe_denied

            reason = describe_denied(Path(os.fsdecode(error.filename)).absolute())
        print(f"{PROGRAM}: error: {reason}", file=sys.stderr)
        return InputError.exit_code
    return 0


def _parse(words: "list[str]") -> argparse.Namespace:
    """Parse a command line; on a wrong one exit with the usage of its own command."""
    parser = make_parser(words)
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in COMMANDS:
        from dlperf_slurm.cli.unknown_words import describe_unknown_command

        parser.error(describe_unknown_command(command))
    return parser.parse_args(words)


class CommandParser(argparse.ArgumentParser):
    """A parser that refuses unknown arguments itself, with its own usage, not the tool's.

    The beginning of an option is unknown too.
    """

    def __init__(self, **keywords: "Any") -> None:
        super().__init__(**{"allow_abbrev": False, **keywords})

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Parse the arguments as argparse does; exit with the command's usage if one is unknown."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            from dlperf_slurm.cli.unknown_words import describe_unknown_arguments

            self.error(describe_unknown_arguments(self, unknown))
        return found, unknown

    def _check_value(self, action, value):  # type: ignore[no-untyped-def]
        if action.choices is not None and value not in action.choices:
            from dlperf_slurm.cli.unknown_words import describe_unknown_choice

            raise argparse.ArgumentError(action, describe_unknown_choice(value, [*action.choices]))

    def format_help(self) -> str:
        """Format the help text, which ends with an example of the command."""
        if self.get_default("handler"):
            from dlperf_slurm.cli.commands import write_epilog

            self.epilog = write_epilog(self.prog)
        return super().format_help()


class _ListedCommand(argparse.ArgumentParser):
    """Placeholder parser of a command, for the list of commands in `--help`; it has no options."""

    def __init__(self, **of_parser: object) -> None:
        pass


def _make_formatter(prog: str) -> argparse.HelpFormatter:
    # argparse's default width, but computed without importing `shutil`, which is slow
    return argparse.HelpFormatter(prog, width=streams.find_width() - 2)


def make_main_parser(program: str = COMMAND) -> argparse.ArgumentParser:
    """Make the parser of the options that precede a command, such as --version."""
    parser = CommandParser(
        prog=program,
        description="Deep-learning benchmarks on Slurm clusters: from a TOML matrix to "
        "reproducible tables.",
        epilog=f"Options of a command: {program} help COMMAND. Documentation: {program} docs",
        formatter_class=_make_formatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"{PROGRAM} {__version__}")
    return parser


def make_parser(words: "Sequence[str]") -> argparse.ArgumentParser:
    """Make the parser of a command line: with the options of the first command named in `words`.

    If none is named, the parser has the list of commands, for `--help`.
    """
    parser = make_main_parser()
    command = next((word for word in words if word in COMMANDS), None)
    commands = parser.add_subparsers(
        title="commands",
        metavar="COMMAND",
        required=True,
        parser_class=_ListedCommand if command is None else CommandParser,
    )
    if command is None:
        for name, (_, text) in COMMANDS.items():
            commands.add_parser(name, help=text)
    else:
        import_module(f"{__name__}.{COMMANDS[command][0]}").add_commands(commands)
    return parser
