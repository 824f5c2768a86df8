"""The command line -> an exit code; each file here declares its commands, with their handlers."""

import argparse
import sys
from collections.abc import Sequence
from typing import Optional

from dlperf_slurm.cli import checks, compare, history, logs, report, runs, setup
from dlperf_slurm.cli.output import (
    PROGRAM,
    escape_unencodable,
    plain_streams,
    replace_closed_streams,
    say_renamed,
    silence_output,
)
from dlperf_slurm.errors import DlperfError, InputError
from dlperf_slurm.version import __version__

# the order of --help: commands for the time before a run, runs, their results, checks
COMMAND_FILES = (setup, runs, report, compare, history, logs, checks)

# the former name of a command -> its name
FORMER_NAMES = {"import": "import-logs", "verify": "parity"}

# The exit code of any program that SIGPIPE ends; a 0 might be taken for a verdict.
READER_GONE_EXIT_CODE = 141


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command and return its exit code, which is that of an error's class or 0.

    Raises KeyboardInterrupt.
    """
    replace_closed_streams()
    escape_unencodable()
    with plain_streams():
        return _run_command(arguments)


def _run_command(arguments: Optional[Sequence[str]]) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in FORMER_NAMES:
        say_renamed(words[0], FORMER_NAMES[words[0]])
        words[0] = FORMER_NAMES[words[0]]
    try:
        if not words:
            make_parser().print_help()
            return 0
        options = make_parser().parse_args(words)
        options.words = words
        options.handler(options)
    except DlperfError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        silence_output()
        return READER_GONE_EXIT_CODE
    except OSError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return InputError.exit_code
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Deep-learning benchmarks on Slurm clusters: a TOML matrix goes in, tables "
        "to defend come out.",
        epilog=f"The options of a command: {PROGRAM} COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for file in COMMAND_FILES:
        file.add_commands(commands)
    return parser
