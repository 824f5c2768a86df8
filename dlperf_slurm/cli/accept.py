"""The commands reference and accept: decide whether a machine is what was measured or promised."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import (
    RUN_HELP,
    add_actions,
    add_ci_options,
    add_command,
    add_json_option,
    add_results_option,
    add_run_options,
)
from dlperf_slurm.cli.output import make_console, say, write_checks, write_file

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the commands `reference` and `accept` to the parser."""
    actions = add_actions(commands, "reference")
    text = "write a reference file with the results of runs, for `accept`"
    parser = add_command(actions, "make", run_reference_make, text)
    text = f"run to take results from: archive, {RUN_HELP}"
    parser.add_argument("runs", metavar="RUN", nargs="+", help=text)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True,
        help="reference file to write (TOML)")  # fmt: skip
    add_results_option(parser)
    parser = add_command(commands, "accept", run_accept)
    add_run_options(parser)
    parser.add_argument("--reference", type=Path, metavar="FILE", required=True,
        help="reference file: made by `reference make`, or by hand with a contract's figures; or "
        "the name of a published source, as for `report --against`")  # fmt: skip
    parser.add_argument("--tolerance", metavar="PERCENT",
        help="allowed slowdown against the reference, such as 3%% (default: from the variation "
        "between the reference's runs, at least two; for a contract's figures: 0)")  # fmt: skip
    add_ci_options(parser)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as Markdown")
    add_json_option(parser)


def run_reference_make(options: argparse.Namespace) -> None:
    """Write a reference file from the measured cases of one or more runs."""
    from dlperf_slurm.jobs.archives import find_readable_run
    from dlperf_slurm.results.collect import collect_outcomes
    from dlperf_slurm.results.reference import serialize_reference

    runs = [find_readable_run(name, options.results) for name in options.runs]
    text = serialize_reference([(run.manifest, collect_outcomes(run)) for run in runs])
    write_file(options.output, "--output", text.encode())
    say(f"Reference: {options.output}")


def run_accept(options: argparse.Namespace) -> None:
    """Print whether a run passes each case of a reference file; raise an error unless all pass."""
    from dlperf_slurm.jobs.archives import find_readable_run
    from dlperf_slurm.published.against import make_reference
    from dlperf_slurm.published.figures import list_sources
    from dlperf_slurm.reports import acceptance_text
    from dlperf_slurm.reports.formats.markdown import write_document
    from dlperf_slurm.reports.regression_check import parse_percent
    from dlperf_slurm.reports.terminal import print_footnotes, show_table
    from dlperf_slurm.results.acceptance import compare_with_reference
    from dlperf_slurm.results.collect import collect_outcomes
    from dlperf_slurm.results.reference import read_reference

    tolerance = parse_percent(options.tolerance)
    source = str(options.reference)
    is_published = source in list_sources() and not options.reference.exists()
    reference = [] if is_published else read_reference(options.reference)
    run = find_readable_run(options.run, options.results)
    cases = collect_outcomes(run)
    if is_published:
        reference = make_reference(source, cases)
    accepted = compare_with_reference(
        run.manifest, cases, reference, options.reference.name, tolerance
    )
    table, notes = acceptance_text.tabulate_acceptance(accepted)
    if options.json:
        print(acceptance_text.serialize_acceptance(accepted), end="", flush=True)
    else:
        console = make_console()
        show_table(table, console)
        print_footnotes(notes, console)
    title = f"{accepted.manifest.title}: {acceptance_text.count_verdicts(accepted)}"
    summary = write_document(title, [table], notes)
    if options.markdown is not None:
        write_file(options.markdown, "--markdown", summary.encode())
    name, checks = acceptance_text.name_acceptance(accepted), acceptance_text.list_checks(accepted)
    write_checks(options, name, checks, acceptance_text.describe_method(accepted), summary)
    acceptance_text.guard_acceptance(accepted)
