"""Write the manual page dlperf-slurm(1) from the parsers of all commands.

The page has the same bytes on every Python: no text from argparse itself, and no date.
"""

import argparse
import re
from collections.abc import Iterator

from dlperf_slurm.cli.completion import list_parsers, make_full_parser
from dlperf_slurm.program import PROGRAM
from dlperf_slurm.version import __version__

# exit codes of errors.py, and of a shell
_EXIT_CODES = (
    ("0", "success"),
    ("1", "doctor found a problem, or could not complete a check"),
    ("2", "a file or argument has to be corrected; nothing was written"),
    ("3", "the scheduler refused a request, does not answer, or is missing"),
    ("4", "a framework's environment is missing"),
    ("5", "results are missing, audit found a wrong figure, or parity found different work"),
    ("6", "a case is slower than --fail-if-slower allows, or accept rejected a case"),
    ("7", "more repeats are needed to decide"),
    ("8", "results are missing only because nodes were unhealthy"),
    ("9", "a library of the tool is missing or broken, or Python is older than 3.9"),
    ("10", "a node is slow, or a repeat on a node failed"),
    ("70", "internal error; please report it"),
    ("130", "interrupted; the run continues"),
)
_FILES = (
    ("matrices/*.toml", "what to measure"),
    ("site_configs/*.toml", "clusters; ~/.config/dlperf-slurm/config.toml overrides their values"),
    ("PREFIX/share/doc/dlperf-slurm/*.md", "the documentation, which `dlperf-slurm docs` prints"),
    ("results/RUN/", "a run: its matrix, scripts, records, journal and report"),
)


def make_man_page() -> str:
    """Return the page in roff (man(7))."""
    parser = make_full_parser()
    return "".join(f"{line}\n" for line in _write_lines(parser))


def _write_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f'.TH DLPERF\\-SLURM 1 "" "dlperf_slurm {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{_escape(PROGRAM)} \\- deep\\-learning benchmarks on Slurm clusters"
    yield ".SH SYNOPSIS"
    yield f".B {_escape(PROGRAM)}\n.I COMMAND\n[\\fIOPTION\\fR ...]"
    yield ".SH DESCRIPTION"
    yield _escape(parser.description or "")
    yield ".SH COMMANDS"
    for text, command in list_parsers(parser):
        if not _has_actions(command):
            yield f".SS {_escape(_write_usage(command))}"
            yield f"{_escape(text[0].upper() + text[1:])}."
            for action in command._actions:
                yield from _describe_argument(action)
    for title, entries in (("EXIT STATUS", _EXIT_CODES), ("FILES", _FILES)):
        yield f".SH {title}"
        for name, text in entries:
            yield f".TP\n.B {_escape(name)}\n{_escape(text)}"


def _has_actions(command: argparse.ArgumentParser) -> bool:
    return any(isinstance(action, argparse._SubParsersAction) for action in command._actions)


def _write_usage(command: argparse.ArgumentParser) -> str:
    """Return a usage line, such as "dlperf-slurm compare RUN_A RUN_B"."""
    names = [_name_value(action) for action in command._actions if not action.option_strings]
    return " ".join([command.prog, *names])


def _describe_argument(action: argparse.Action) -> Iterator[str]:
    if action.help in (None, argparse.SUPPRESS) or isinstance(action, argparse._HelpAction):
        return
    text = str(action.help).replace("%%", "%")
    if not action.option_strings:
        yield f".TP\n\\fI{_escape(_name_value(action))}\\fR\n{_escape(text)}"
        return
    names = ", ".join(f"\\fB{_escape(name)}\\fR" for name in action.option_strings)
    value = "" if action.nargs == 0 else f" \\fI{_escape(_name_value(action))}\\fR"
    yield f".TP\n{names}{value}\n{_escape(text)}"


def _name_value(action: argparse.Action) -> str:
    """Return the placeholder of an argument, with brackets or dots as in argparse."""
    name = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "")
    name = str(name or action.dest.replace("_", "-").upper())
    if action.nargs == "?":
        return f"[{name}]"
    return {"*": f"[{name} ...]", "+": f"{name} ..."}.get(str(action.nargs), name)


def _escape(text: str) -> str:
    """Escape a text for roff: keep hyphens as they are, and let no line start a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.M)
