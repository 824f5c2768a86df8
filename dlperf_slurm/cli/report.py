"""The command report: print a run's tables in a layout, and write its report folder."""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from dlperf_slurm.cli.options import (
    add_ci_options,
    add_command,
    add_json_option,
    add_repeated_option,
    add_run_options,
)
from dlperf_slurm.cli.output import make_console, record_output, write_checks
from dlperf_slurm.errors import CasesFailedError, DlperfError, InputError, UnhealthyNodesError
from dlperf_slurm.program import COMMAND
from dlperf_slurm.published.layouts import DEFAULT_LAYOUT, list_layouts
from dlperf_slurm.reports.exports import list_exports, load_export
from dlperf_slurm.reports.plots import CHOICES, SOME

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.jobs.run_files import FileState
    from dlperf_slurm.reports.summarize import Summary, TableMaker

# the layout that is also a report of NVIDIA's benchmark.py as JSON
NVIDIA = "nvidia"


def add_commands(commands: "Commands") -> None:
    """Add the command `report` to the parser."""
    parser = add_command(commands, "report", run_report)
    add_run_options(parser)
    add_json_option(
        parser,
        "print report.json, or with --layout nvidia the JSON that NVIDIA's benchmark.py writes",
    )
    parser.add_argument(
        "--layout",
        choices=(DEFAULT_LAYOUT, *list_layouts()),
        default=DEFAULT_LAYOUT,
        help=f"table layout (default: {DEFAULT_LAYOUT})",
    )
    parser.add_argument(
        "--format",
        choices=list_exports(),
        help="print the results in the format of another program",
    )
    add_ci_options(parser)
    parser.add_argument(
        "--all", action="store_true", help="print all tables and footnotes, not only the summary"
    )
    parser.add_argument(
        "--published",
        metavar="SOURCE",
        help="print the tables of published results instead of those of a run",
    )
    text = "compare with published results: dlperf, nvidia_pytorch_resnet50, ..."
    add_repeated_option(parser, "--against", "NAME", text)
    parser.add_argument(
        "--plots",
        choices=CHOICES,
        default=SOME,
        help="plots to draw: 'some' (default): plots of the tables and of unusual step times; "
        "'files': as 'some', also as PDF and PNG; 'all': as 'some', and step times of every case; "
        "'none': no plots (the fastest). Instead of report.html, 'all' and 'none' write "
        "report-plots-all.html and report-plots-none.html",
    )
    parser.add_argument(
        "--steps",
        action="store_true",
        help="also write the time of each step of each rank: steps/CASE_ID/steps.parquet",
    )
    parser.add_argument(
        "--details",
        action="store_true",
        help="also print which processes of other users disturbed repeats; the written files never "
        "name them",
    )


def run_report(options: argparse.Namespace) -> None:
    if options.json and options.layout not in (DEFAULT_LAYOUT, NVIDIA):
        raise InputError(f"report: --json needs --layout {DEFAULT_LAYOUT} or {NVIDIA}")
    if options.json and options.format:
        raise InputError("report: --json and --format exclude each other; give one of them")
    if options.published is not None:
        _print_published(options)
        return
    from dlperf_slurm.jobs.archives import find_readable_run

    run = find_readable_run(options.run, options.results)
    if options.junit is not None or options.github:
        _write_checks(run, options)
    if options.json or options.format:
        _print_text(run, options)
    else:
        choices = (options.layout, options.plots, options.all, options.details, options.steps)
        report_run(run, ReportChoices(*choices), options.against)


def _write_checks(run: "Run", options: argparse.Namespace) -> None:
    """Write a run's JUnit report and GitHub annotations, with a check per case."""
    from dlperf_slurm.files.folders import run_permissions
    from dlperf_slurm.reports import report_files
    from dlperf_slurm.reports.ci_checks import list_run_checks
    from dlperf_slurm.reports.formats.markdown import FILE_NAME, serialize

    with run_permissions(run.path):
        report = report_files.make_report(run, {})
    summary = report.summary
    markdown = serialize(report)[FILE_NAME].decode()
    checks = list_run_checks(summary)
    write_checks(options, summary.manifest.run_id, checks, summary.method, markdown)


def _print_text(run: "Run", options: argparse.Namespace) -> None:
    """Print report.json, NVIDIA's report, or another program's; raises as `report_run` does."""
    from dlperf_slurm.files.folders import run_permissions
    from dlperf_slurm.published.layouts.parts.figures import make_run_figures
    from dlperf_slurm.published.nvidia_report import serialize_figures
    from dlperf_slurm.reports import report_files
    from dlperf_slurm.reports.formats.json import FILE_NAME, serialize

    with run_permissions(run.path):
        report = report_files.make_report(run, _choose_sources(options.against))
    if options.format:
        text = load_export(options.format).serialize(report.summary)
    elif options.layout == NVIDIA:
        text = serialize_figures(make_run_figures(report.summary.results)) + "\n"
    else:
        text = serialize(report)[FILE_NAME].decode()
    print(text, end="", flush=True)
    error = find_incomplete(report.summary)
    if error is not None:
        raise error


def list_remarks(summary: "Summary") -> list[str]:
    """Return what `audit` finds wrong in the tables of a run's report, one line per cell."""
    from dlperf_slurm.published.audit import audit_report
    from dlperf_slurm.reports.formats.csv import FILE_NAME
    from dlperf_slurm.results.columns import serialize_csv

    return [
        f"audit: {finding.kind}: {FILE_NAME}:{finding.line} {finding.cell} is {finding.published}: "
        f"{finding.reason}"
        for finding in audit_report(serialize_csv(summary.results.case_columns), FILE_NAME)
    ]


class ReportChoices(NamedTuple):
    """What a report shows and writes; files with other plots than the default have own names.

    `layout` is "default", or that of a published document; `plots` is a choice of `--plots`. With
    `is_whole` all tables are printed, with `is_detailed` also the names of other users' processes.
    With `has_steps` all step times are written.
    """

    layout: str = DEFAULT_LAYOUT
    plots: str = SOME
    is_whole: bool = False
    is_detailed: bool = False
    has_steps: bool = False


_DEFAULT_CHOICES = ReportChoices()


def report_run(
    run: "Run", choices: ReportChoices = _DEFAULT_CHOICES, against: Sequence[str] = ()
) -> None:
    """Print a summary of a run, or all its tables, and write its report folder.

    `against` names published results to compare with. Raises CasesFailedError, after all is
    written, if repeats have no valid record; UnhealthyNodesError if that is due to nodes alone.
    """
    from dlperf_slurm.jobs.run_files import find_files
    from dlperf_slurm.reports.output_cache import Output, load_output, store_output

    console = make_console()
    # in GitHub Actions the output differs: text that looks like a workflow command is broken up
    shown = (COMMAND, console.width, console.is_terminal, "GITHUB_ACTIONS" in os.environ)
    key = (*choices, *shown)
    # no cached output with --against: a published source may be a file, which the user may edit
    output = None if against else load_output(run, key)
    if output is not None:
        console.file.write(output.text)
        console.file.flush()
    else:
        found = find_files(run.path)
        with record_output() as texts:
            error = _write_report(run, found, choices, against)
        output = Output("".join(texts), error)
        if not against:
            store_output(run, key, found, output)
    if output.error is not None:
        raise output.error


def _write_report(
    run: "Run", found: "list[FileState]", choices: ReportChoices, against: Sequence[str]
) -> Optional[DlperfError]:
    """Print and write a report as `report_run` does, which raises the returned error.

    `found` is what `find_files` returned; `against` names published results to compare with, and
    `choices` are the options of the report.
    """
    from dlperf_slurm.files.folders import run_permissions
    from dlperf_slurm.reports import report_files
    from dlperf_slurm.reports.terminal import print_banner, print_summary, print_whole_report
    from dlperf_slurm.results.interference import list_disturbed_repeats

    with run_permissions(run.path):
        has_steps = choices.has_steps or report_files.has_step_files(run)
        report = report_files.make_report(run, _choose_sources(against), has_steps, found)
        folder = report_files.make_folder(run)
        report_files.write_files(report, folder)
    summary = report.summary
    if choices.layout == DEFAULT_LAYOUT:
        show = print_whole_report if choices.is_whole else print_summary
        show(summary, make_console())
    else:
        from dlperf_slurm.published.layouts.parts.output import print_document, write_layout

        with run_permissions(run.path):
            document = write_layout(report, choices.layout, folder)
        print_document(document, summary.manifest.title, summary.description, make_console())
        print_banner(summary, make_console())
    for remark in list_remarks(summary):
        print(remark)
    if choices.is_detailed:
        print(*list_disturbed_repeats(summary.results.frames.repeats), sep="\n")
    with run_permissions(run.path):
        pages = report_files.write_plots(report, folder, choices.plots)
    print()
    if choices.layout == DEFAULT_LAYOUT and not choices.is_whole:
        print(f"All tables: {COMMAND} report {run.path} --all")
    for page in pages:
        print(f"Report: {page}", flush=True)
    return find_incomplete(summary)


def _choose_sources(names: Sequence[str]) -> "dict[str, TableMaker]":
    """Return the functions that make the tables of `--against`, by name of the source."""
    if not names:
        return {}
    from dlperf_slurm.published.against import choose_sources

    return choose_sources(names)


def find_incomplete(summary: "Summary") -> Optional[DlperfError]:
    """Return CasesFailedError or UnhealthyNodesError if repeats have no valid record, or None."""
    if summary.is_complete:
        return None
    missing = summary.planned_repeats - summary.ok_repeats
    words = f"{missing} of {summary.planned_repeats} repeats have no valid result"
    repeats = summary.results.frames.repeats
    if ((repeats.problem == "") | repeats.is_unhealthy).all():
        return UnhealthyNodesError(
            f"{words}, because of unhealthy nodes; the footnotes of the report name the nodes"
        )
    return CasesFailedError(
        f"{words}; the footnotes of the report say why, and `log` prints the output"
    )


def _print_published(options: argparse.Namespace) -> None:
    """Print published results in a document's layout; this needs no run and writes no file.

    Raises InputError for options that exclude each other.
    """
    from dlperf_slurm.published.figures import read_source
    from dlperf_slurm.published.layouts import load_layout
    from dlperf_slurm.published.layouts.parts.figures import make_published_figures
    from dlperf_slurm.published.layouts.parts.output import print_document
    from dlperf_slurm.published.nvidia_report import serialize_figures

    if options.run is not None:
        raise InputError("report: RUN and --published exclude each other; give one of them")
    if options.against:
        raise InputError("report: --against needs a RUN, and cannot be combined with --published")
    if options.layout == DEFAULT_LAYOUT:
        raise InputError(f"report: --published needs --layout {' or '.join(list_layouts())}")
    figures = read_source(options.published)
    if options.json:
        print(serialize_figures(make_published_figures(figures)), flush=True)
        return
    document = load_layout(options.layout).lay_out(make_published_figures(figures))
    hardware = " and ".join(figures.hardware.unique())
    print_document(
        document, f"published: {figures.source.iloc[0]}", f"on {hardware}", make_console()
    )
