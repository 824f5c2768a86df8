"""A command or option that the tool does not know -> an error message with what may be meant."""

import argparse
import difflib
import shlex
from collections.abc import Sequence

from dlperf_slurm.cli.commands import COMMANDS
from dlperf_slurm.program import COMMAND

# words of other tools -> the command that is meant
_MEANINGS = {
    "check": "doctor",
    "clean": "archive",
    "diff": "compare",
    "kill": "cancel",
    "logs": "log",
    "ls": "list",
    "ps": "list",
    "run": "submit",
    "runs": "list",
    "sbatch": "submit",
    "scancel": "cancel",
    "show": "report",
    "squeue": "status",
    "start": "submit",
    "stop": "cancel",
    "validate": "plan",
}


def describe_unknown_command(word: str) -> str:
    """Return the error message for a word that is no command, with the nearest command."""
    near = [_MEANINGS[word]] if word in _MEANINGS else difflib.get_close_matches(word, COMMANDS, 1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return f"{word!r} is not a command.{meant} All commands: {COMMAND} --help"


def describe_unknown_choice(word: str, choices: Sequence[str]) -> str:
    """Return the error message for a word that is none of the choices, with the nearest one."""
    near = difflib.get_close_matches(word, choices, 1)
    known = f". Did you mean {near[0]!r}? Allowed:" if near else "; allowed:"
    return f"{word!r} is not allowed{known} {', '.join(choices)}"


def describe_unknown_arguments(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Return the error message for unknown arguments, with the nearest option or setting."""
    from dlperf_slurm.matrix.file import find_setting

    option, _, value = words[0].partition("=")
    options = parser._option_string_actions
    begun = [name for name in options if name.startswith(option) and option.startswith("--")]
    near = begun[:1] or difflib.get_close_matches(option, options, 1)
    key = find_setting(option.lstrip("-").replace("-", "_")) if "--set" in options else ""
    if option.startswith("-") and key:
        value = value or next((word for word in words[1:2] if not word.startswith("-")), "VALUE")
        near = [f"--set {shlex.quote(f'{key}={value}')}"]
    meant = f". Did you mean {near[0]!r}?" if near and option.startswith("-") else ""
    return f"unrecognized arguments: {' '.join(words)}{meant}"
