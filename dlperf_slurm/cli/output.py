"""Lines and tables -> the terminal at its own width, or plain lines; and bytes -> files."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Optional, TextIO, cast

from dlperf_slurm.cli.streams import PlainStream, find_width, silence_output
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.writing import write_file as write_whole
from dlperf_slurm.plain_text import strip_controls
from dlperf_slurm.program import PROGRAM

if TYPE_CHECKING:
    from dlperf_slurm.reports.ci_checks import Check
    from dlperf_slurm.reports.plain_console import PlainConsole
    from dlperf_slurm.reports.plots import Plot


def make_console() -> "PlainConsole":
    """Make a console for standard output, as wide as the terminal, or 200 columns without one."""
    from dlperf_slurm.reports.plain_console import PlainConsole

    file = find_plain_output()
    if not sys.stdout.isatty():
        # piped output is read by programs such as grep: do not wrap it at 80 columns
        return PlainConsole(file, 200)
    is_plain = os.environ.get("TERM") in ("dumb", "unknown") or "NO_COLOR" in os.environ
    return PlainConsole(file, find_width(), is_terminal=not is_plain)


class Recorder(PlainStream):
    """A stream that records what is written to it in `texts`, and otherwise delegates."""

    def __init__(self, stream: "TextIO") -> None:
        super().__init__(stream)
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return self.stream.write(text)


@contextmanager
def record_output() -> Iterator[list[str]]:
    """Record standard output while printing it; yield the list of texts, with terminal styles."""
    recorder = Recorder(find_plain_output())
    with redirect_stdout(cast("TextIO", PlainStream(cast("TextIO", recorder)))):
        yield recorder.texts


def find_plain_output() -> "TextIO":
    """Return the stream that sys.stdout wraps, which does not strip terminal styles."""
    # PlainStream strips control characters, and terminal styles are such characters
    return sys.stdout.stream if isinstance(sys.stdout, PlainStream) else sys.stdout


def say(line: str) -> None:
    """Print a line at once; a closed pipe (`| head`) does not stop the command."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        silence_output()


def warn(line: str) -> None:
    """Print a warning to standard error, preceded by the name of the tool."""
    print(f"{PROGRAM}: {line}", file=sys.stderr)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=1, default=str), flush=True)


@contextmanager
def only_result(is_asked: bool) -> Iterator[None]:
    """Discard progress messages in a context if `is_asked`, so that only the result is printed.

    Commands ask for this with --json and --quiet. Warnings and errors still go to standard error.
    """
    if not is_asked:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def write_checks(
    options: argparse.Namespace, name: str, checks: "Sequence[Check]", method: str, summary: str
) -> None:
    """Write a JUnit report with --junit, and GitHub annotations and a job summary with --github.

    `name` is that of the test suite, `method` says how verdicts are found, and `summary` is
    Markdown for $GITHUB_STEP_SUMMARY.
    """
    from dlperf_slurm.reports.ci_checks import list_annotations, serialize_junit

    if options.junit is not None:
        write_file(options.junit, "--junit", serialize_junit(name, checks, method).encode())
    if options.github:
        # GitHub reads both streams; standard output may be JSON
        lines = strip_controls("".join(f"{line}\n" for line in list_annotations(checks)))
        stream = sys.stderr
        (stream.stream if isinstance(stream, PlainStream) else stream).write(lines)
        path = os.environ.get("GITHUB_STEP_SUMMARY")
        if path:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{summary}\n")


def check_plot_file(path: Optional[Path]) -> None:
    """Raise InputError if a plot's file name has an unknown suffix; None is no plot."""
    if path is not None and path.suffix not in (".svg", ".pdf", ".png"):
        raise InputError(f"--plot: {path}: the file name must end with .svg, .pdf or .png")


def write_plot(plot: "Plot", path: Path) -> None:
    write_file(path, "--plot", plot.files[f"{plot.name}{path.suffix}"])


def write_file(path: Path, option: str, data: bytes) -> None:
    """Write `data` to the file that an option such as "--plot" names, or replace it.

    Raises InputError, which begins with the option, if that fails.
    """
    # Path.resolve of Python 3.12 and older raises RuntimeError for a loop of links
    path = Path(os.path.realpath(path))
    try:
        if path.exists() and not path.is_file():
            # a terminal or a pipe cannot be replaced by a temporary file
            path.write_bytes(data)
        else:
            write_whole(path, data)
    except OSError as error:
        raise InputError(f"{option}: {error}") from error
