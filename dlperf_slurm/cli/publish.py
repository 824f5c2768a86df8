"""The command publish: a static website of a results folder."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_command, add_results_option
from dlperf_slurm.cli.output import say, warn
from dlperf_slurm.plain_text import count_things

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands

DEFAULT_TITLE = "Deep-learning benchmarks"


def add_commands(commands: "Commands") -> None:
    """Add the command `publish` to the parser."""
    parser = add_command(commands, "publish", run_publish)
    text = "folder of the site; an existing site is updated"
    parser.add_argument("directory", type=Path, metavar="DIR", help=text)
    parser.add_argument(
        "--title", default=DEFAULT_TITLE, help=f"title of the site (default: {DEFAULT_TITLE})"
    )
    parser.add_argument(
        "--names",
        action="store_true",
        help="show the real names of hosts and users (default: host-1, host-2, ... and user)",
    )
    add_results_option(parser)


def run_publish(options: argparse.Namespace) -> None:
    """Write a static website of all runs; runs that cannot be read are warnings, also on a page."""
    from dlperf_slurm.reports.publish import INDEX, publish_site

    done = publish_site(options.results, options.directory, options.title, options.names)
    for problem in done.problems:
        warn(f"warning: {problem}")
    counts = f"{count_things(len(done.written), 'file')} written, {done.kept} unchanged"
    say(f"{counts}, {len(done.removed)} removed")
    say(f"Site: {options.directory / INDEX}")
