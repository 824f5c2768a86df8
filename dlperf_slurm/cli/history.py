"""The command history: what each case measured from run to run, and a check of the newest run."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import (
    add_ci_options,
    add_command,
    add_output_options,
    add_repeated_option,
)
from dlperf_slurm.cli.output import (
    check_plot_file,
    make_console,
    warn,
    write_checks,
    write_file,
    write_plot,
)
from dlperf_slurm.errors import InputError
from dlperf_slurm.program import find_results_dir

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.results.history.timeline import SelectedHistory

DEFAULT_WINDOW = 5
# with more cases than this, only the newest run of each case is shown
MAX_CASES = 6
# name of the checks and their tables for CI
NAME = "History of the newest run"


def add_commands(commands: "Commands") -> None:
    """Add the command `history` to the parser."""
    parser = add_command(commands, "history", run_history)
    # history takes several results folders, unlike other commands
    parser.add_argument(
        "--results",
        action="append",
        type=Path,
        metavar="DIR",
        help="folder that contains runs; may be repeated (default: $DLPERF_SLURM_RESULTS, else "
        "results)",
    )
    text = "only cases whose id contains this text, or matches it as a pattern with * and ?"
    add_repeated_option(parser, "--case", "PATTERN", text)
    add_repeated_option(parser, "--framework", "NAME", "only cases of this framework")
    parser.add_argument(
        "--fail-if-slower",
        metavar="PERCENT",
        help="exit with 6 if a case of the newest run is significantly slower than the median "
        "of earlier runs by more than PERCENT, such as 3%%; with 7 if more repeats are needed "
        "to tell; with 5 if a case cannot be compared",
    )
    parser.add_argument(
        "--window",
        type=int,
        default=DEFAULT_WINDOW,
        metavar="RUNS",
        help=f"number of earlier runs to compare the newest with (default: {DEFAULT_WINDOW})",
    )
    text = (
        "print all runs of each case (default: only the newest run, if there are more than "
        f"{MAX_CASES} cases)"
    )
    parser.add_argument("--all", action="store_true", help=text)
    add_ci_options(parser)
    add_output_options(parser)
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="write a CSV file with a row per case and run"
    )
    text = "write a Parquet file with a row per case and run"
    parser.add_argument("--parquet", type=Path, metavar="FILE", help=text)


def run_history(options: argparse.Namespace) -> None:
    """Print the results of each case from run to run, and write the files that options name.

    Raises InputError if no case is selected; with --fail-if-slower, SlowerError, InconclusiveError
    or CasesFailedError, as `guard_history`.
    """
    from dlperf_slurm.reports import history_text, regression_check
    from dlperf_slurm.results.history.timeline import compare_newest, read_history

    limit = regression_check.parse_percent(options.fail_if_slower)
    if options.window < 1:
        raise InputError(f"--window: {options.window} is not allowed; allowed: at least 1")
    check_plot_file(options.plot)
    folders = options.results or [Path(find_results_dir())]
    history = read_history(folders, options.case, options.framework)
    for problem in history.problems:
        warn(f"warning: {problem}")
    _write_files(history, options)
    _print(history, options.json, options.all)
    if limit is None and options.junit is None and not options.github:
        return
    from dlperf_slurm.reports.formats.markdown import write_document

    newest = compare_newest(history.rows, limit, options.window)
    summary = write_document(NAME, *history_text.tabulate_history(history.rows))
    checks = regression_check.list_history_checks(newest, limit)
    write_checks(options, NAME, checks, history_text.METHOD, summary)
    if limit is not None:
        regression_check.guard_history(newest, limit)


def _write_files(history: "SelectedHistory", options: argparse.Namespace) -> None:
    from dlperf_slurm.reports.formats.parquet import serialize_frames
    from dlperf_slurm.results.columns import serialize_csv
    from dlperf_slurm.results.history.timeline import make_history_frame

    if options.csv is not None:
        write_file(options.csv, "--csv", serialize_csv(make_history_frame(history.rows)).encode())
    if options.parquet is not None:
        files = serialize_frames(make_history_frame(history.rows))
        write_file(options.parquet, "--parquet", *files)
    if options.plot is not None:
        from dlperf_slurm.reports.plots.between_runs import plot_history

        write_plot(plot_history(history.rows), options.plot)


def _print(history: "SelectedHistory", as_json: bool, is_whole: bool) -> None:
    from dlperf_slurm.reports import history_text
    from dlperf_slurm.reports.plain_console import Text
    from dlperf_slurm.reports.terminal import print_footnotes, show_table
    from dlperf_slurm.results.history.nodes import read_node_histories

    nodes = read_node_histories(history.rows)
    if as_json:
        print(
            history_text.serialize_json(history.rows, nodes, history.problems), end="", flush=True
        )
        return
    console = make_console()
    is_short = not is_whole and history.rows.timeline.nunique() > MAX_CASES
    tabulate = history_text.tabulate_newest if is_short else history_text.tabulate_history
    tables, notes = tabulate(history.rows)
    for table in tables:
        show_table(table, console)
        console.print()
    console.print(Text(history_text.METHOD, style="dim"))
    print_footnotes(notes, console)
    for node in nodes:
        console.print(Text(history_text.describe_node(node), style="yellow" if node.is_bad else ""))
