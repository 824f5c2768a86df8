"""The command compare: compare two runs case by case, and fail a CI job if one is slower."""

import argparse
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import (
    RUN_HELP,
    add_ci_options,
    add_command,
    add_output_options,
    add_results_option,
)
from dlperf_slurm.cli.output import check_plot_file, make_console, say, write_checks, write_plot
from dlperf_slurm.program import LATEST

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.results.compare import RunComparison


def add_commands(commands: "Commands") -> None:
    """Add the command `compare` to the parser."""
    parser = add_command(commands, "compare", run_compare)
    text = f"first run: archive, {RUN_HELP}; default: latest~1"
    parser.add_argument("run_a", metavar="RUN_A", nargs="?", default=f"{LATEST}~1", help=text)
    text = "second run, which is compared with RUN_A; default: latest"
    parser.add_argument("run_b", metavar="RUN_B", nargs="?", default=LATEST, help=text)
    parser.add_argument(
        "--fail-if-slower",
        metavar="PERCENT",
        help="exit with 6 if a case is significantly slower in B than in A by more than PERCENT, "
        "such as 3%%; with 7 if more repeats are needed to tell; with 5 if a case of A cannot be "
        "compared",
    )
    parser.add_argument(
        "--equivalent-within",
        metavar="PERCENT",
        help="largest difference in speed at which a case counts as equivalent in both runs "
        "(default: that of --fail-if-slower, or 2%%)",
    )
    add_ci_options(parser)
    add_output_options(parser)
    add_results_option(parser)


def run_compare(options: argparse.Namespace) -> None:
    """Print the comparison of two runs, and write the files that options name.

    With --fail-if-slower, raises SlowerError, InconclusiveError or CasesFailedError.
    """
    from dlperf_slurm.jobs.archives import find_readable_run
    from dlperf_slurm.reports.regression_check import guard_comparison, parse_percent
    from dlperf_slurm.results.collect import collect_outcomes
    from dlperf_slurm.results.compare import compare_runs

    limit = parse_percent(options.fail_if_slower)
    margin = parse_percent(options.equivalent_within)
    check_plot_file(options.plot)
    a, b = (find_readable_run(name, options.results) for name in (options.run_a, options.run_b))
    cases_a, cases_b = collect_outcomes(a), collect_outcomes(b)
    compared = compare_runs(a.manifest, cases_a, b.manifest, cases_b, limit, margin)
    _print(compared, options)
    if options.plot is not None:
        from dlperf_slurm.reports.plots.between_runs import plot_comparison

        write_plot(plot_comparison(compared), options.plot)
    if limit is not None:
        guard_comparison(compared)


def _print(compared: "RunComparison", options: argparse.Namespace) -> None:
    from dlperf_slurm.reports import comparison_text
    from dlperf_slurm.reports.formats.markdown import write_document
    from dlperf_slurm.reports.regression_check import list_comparison_checks
    from dlperf_slurm.reports.terminal import print_footnotes, show_table

    table, notes = comparison_text.tabulate_comparison(compared)
    if options.json:
        print(comparison_text.serialize_comparison(compared), end="", flush=True)
    else:
        if changes := comparison_text.list_hardware_changes(compared):
            say(f"The runs were measured on different hardware: {'; '.join(changes)}")
        console = make_console()
        show_table(table, console)
        print_footnotes(notes, console)
    name = comparison_text.name_comparison(compared)
    method = comparison_text.describe_method(compared)
    summary = write_document(name, [table], notes)
    write_checks(options, name, list_comparison_checks(compared), method, summary)
