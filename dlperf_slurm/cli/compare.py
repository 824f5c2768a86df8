"""The command compare: two runs, case by case; and the guard that fails a CI that got slower."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from dlperf_slurm.cli.options import add_command, add_output_options, add_results_option
from dlperf_slurm.cli.output import check_plot_file, make_console, write_file, write_plot
from dlperf_slurm.errors import CasesFailedError, InputError, SlowerError, UndecidedError

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.results.compare import RunComparison


def add_commands(commands: "Commands") -> None:
    """Add `compare`."""
    parser = add_command(commands, "compare", run_compare)
    run_help = "run directory, run id or its beginning"
    parser.add_argument("run_a", metavar="RUN_A", help=run_help)
    parser.add_argument("run_b", metavar="RUN_B", help=run_help)
    parser.add_argument(
        "--fail-if-slower",
        metavar="PERCENT",
        help="exit code 6 if a case of B is slower by more, such as 3%%, beyond chance; 7 if it "
        "takes more repeats to show that none is; 5 if a case of A cannot be compared",
    )
    parser.add_argument(
        "--equivalent-within",
        metavar="PERCENT",
        help="the difference that does not matter (that of --fail-if-slower, or 2%%)",
    )
    parser.add_argument(
        "--junit", type=Path, metavar="FILE", help="write a JUnit report for a CI system"
    )
    add_output_options(parser, "print the figures as JSON")
    add_results_option(parser)


def run_compare(options: argparse.Namespace) -> None:
    from dlperf_slurm.jobs.run_directory import find_run
    from dlperf_slurm.results.collect import collect_outcomes
    from dlperf_slurm.results.compare import compare_runs

    limit = parse_percent(options.fail_if_slower)
    margin = parse_percent(options.equivalent_within)
    check_plot_file(options.plot)
    a, b = (find_run(name, options.results) for name in (options.run_a, options.run_b))
    cases_a, cases_b = collect_outcomes(a), collect_outcomes(b)
    compared = compare_runs(a.manifest, cases_a, b.manifest, cases_b, limit, margin)
    _print(compared, options.json)
    if options.junit is not None:
        from dlperf_slurm.reports.comparison_text import serialize_junit

        write_file(options.junit, "--junit", serialize_junit(compared).encode())
    if options.plot is not None:
        from dlperf_slurm.reports.plots.between_runs import plot_comparison

        write_plot(plot_comparison(compared), options.plot)
    if limit is not None:
        guard(compared)


def parse_percent(text: Optional[str]) -> Optional[float]:
    """The fraction that a percentage stands for: "3%" -> 0.03.

    Raises InputError for anything else; a bare number could be meant either way.
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text.strip(), re.ASCII)
    if found is None or float(found.group(1)) >= 100:
        raise InputError(f"the limit {text!r} is no percentage below 100, such as 3%")
    return float(found.group(1)) / 100


def _print(compared: "RunComparison", as_json: bool) -> None:
    from dlperf_slurm.reports.comparison_text import serialize_comparison, tabulate_comparison
    from dlperf_slurm.reports.terminal import print_footnotes, show_table

    if as_json:
        print(serialize_comparison(compared), end="", flush=True)
        return
    console = make_console()
    table, notes = tabulate_comparison(compared)
    show_table(table, console)
    print_footnotes(notes, console)


def guard(compared: "RunComparison") -> None:
    """Raise the error that a CI is to stop at.

    Raises SlowerError when a case is slower than the limit allows, CasesFailedError when one of
    run A's cases cannot be compared, UndecidedError when more repeats are needed to show that none
    is slower.
    """
    from dlperf_slurm.reports.comparison_text import describe_comparison, format_percent
    from dlperf_slurm.results.verdicts import NOT_COMPARABLE

    guarded = [c for c in compared.comparisons if c.samples_a]
    slower = [c for c in guarded if c.is_beyond_limit]
    alone = [c for c in guarded if c.verdict == NOT_COMPARABLE]
    undecided = [c for c in guarded if not c.is_within_limit]
    limit = format_percent(compared.limit or 0.0)
    lines = [f"{c.case_id} ({c.quantity}): {describe_comparison(c)}" for c in slower or undecided]
    if slower:
        first_line = f"slower by more than {limit}: {len(slower)} of {len(guarded)} comparisons"
        raise SlowerError("\n  ".join([first_line, *lines]))
    if alone or not guarded:
        raise CasesFailedError(
            f"{len(alone)} of the {len(guarded)} figures of A cannot be compared; the notes say why"
        )
    if undecided:
        first_line = (
            f"undecided whether slower by more than {limit}: {len(undecided)} of {len(guarded)} "
            "comparisons"
        )
        raise UndecidedError("\n  ".join([first_line, *lines]))
