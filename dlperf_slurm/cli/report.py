"""The command report: a run's tables on the terminal, in a layout, and its report folder."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import add_command, add_run_options
from dlperf_slurm.cli.output import make_console
from dlperf_slurm.errors import CasesFailedError, InputError
from dlperf_slurm.reports.layouts import DEFAULT_LAYOUT, list_layouts

if TYPE_CHECKING:
    from dlperf_slurm.cli.options import Commands
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.reports.formats import Report
    from dlperf_slurm.reports.plots import Plot
    from dlperf_slurm.reports.summarize import Summary
    from dlperf_slurm.results.collect import CaseOutcomes

# the plots to draw: those of the tables and of the cases to look at, those of every case, none
SOME = "some"
ALL = "all"
NONE = "none"

PLOTS_DIR = "plots"


def add_commands(commands: "Commands") -> None:
    """Add `report`."""
    text = "make the tables of a run, from its files alone"
    parser = add_command(commands, "report", text, run_report)
    add_run_options(parser)
    parser.add_argument(
        "--layout",
        choices=(DEFAULT_LAYOUT, *list_layouts()),
        default=DEFAULT_LAYOUT,
        help=f"whose tables to make ({DEFAULT_LAYOUT})",
    )
    parser.add_argument(
        "--published", metavar="SOURCE", help="lay out published figures instead of a run's"
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="NAME",
        help="set a published source beside it: dlperf, nvidia_pytorch_resnet50, ...",
    )
    parser.add_argument(
        "--plots",
        choices=(SOME, ALL, NONE),
        default=SOME,
        help="figures: of the tables and of the steps worth a look, of all cases' steps, or none, "
        "which is faster (some)",
    )


def run_report(options: argparse.Namespace) -> None:
    from dlperf_slurm.jobs.run_directory import find_run

    if options.published is not None:
        _print_published(options)
        return
    run = find_run(options.run, options.results)
    report_run(run, options.layout, options.against, options.plots)


def report_run(
    run: "Run", layout: str = DEFAULT_LAYOUT, against: Sequence[str] = (), plots: str = SOME
) -> None:
    """Print a run's tables, and write its report folder.

    Raises CasesFailedError, after all is written, when repeats have no sound record.
    """
    from dlperf_slurm.jobs.run_directory import REPORT_DIR
    from dlperf_slurm.reports.formats import Report
    from dlperf_slurm.reports.summarize import summarize
    from dlperf_slurm.reports.terminal import print_summary
    from dlperf_slurm.results.collect import collect_outcomes

    outcomes = collect_outcomes(run)
    summary = summarize(run.manifest, outcomes, against)
    folder = run.path / REPORT_DIR
    folder.mkdir(exist_ok=True)
    report = Report(summary, outcomes, matrix_toml=_read_matrix(run))
    _write_files(report, folder, shows_plots=False)
    if layout == DEFAULT_LAYOUT:
        print_summary(summary, make_console())
    else:
        _report_layout(run, summary, layout)
    report = dataclasses.replace(report, plots=_write_plots(summary, outcomes, folder, plots))
    _write_files(report, folder, shows_plots=True)
    print(f"\nReport: {folder}", flush=True)
    if not summary.is_complete:
        missing = summary.planned_repeats - summary.ok_repeats
        raise CasesFailedError(
            f"{missing} of {summary.planned_repeats} repeats have no sound record; "
            "the footnotes name each"
        )


def _read_matrix(run: "Run") -> str:
    """The text of the run's matrix; empty for imported logs, which have none."""
    from dlperf_slurm.jobs.run_directory import MATRIX_FILE

    matrix = run.path / MATRIX_FILE
    return matrix.read_text(encoding="utf-8") if matrix.is_file() else ""


def _write_files(report: "Report", folder: Path, shows_plots: bool) -> None:
    """Write the files of all formats that show plots, or of all that do not."""
    from dlperf_slurm.reports.formats import list_formats, load_format

    for report_format in map(load_format, list_formats()):
        if shows_plots == report_format.SHOWS_PLOTS:
            for name, content in report_format.serialize(report).items():
                (folder / name).write_bytes(content)


def _write_plots(
    summary: "Summary", outcomes: "Sequence[CaseOutcomes]", folder: Path, which: str
) -> "list[Plot]":
    """Draw the plots and write them in place of those of an earlier report."""
    plots: list[Plot] = []
    if which != NONE:
        from dlperf_slurm.reports.plots.run_plots import plot_run

        plots = plot_run(summary, outcomes, is_every_case=which == ALL)
    plots_dir = folder / PLOTS_DIR
    for old in [*plots_dir.glob("*.svg"), *plots_dir.glob("*.pdf")]:
        old.unlink()
    for plot in plots:
        plots_dir.mkdir(exist_ok=True)
        (plots_dir / f"{plot.name}.svg").write_bytes(plot.svg)
        (plots_dir / f"{plot.name}.pdf").write_bytes(plot.pdf)
    return plots


def _print_published(options: argparse.Namespace) -> None:
    """Print published figures in a layout, which needs no run and writes nothing.

    Raises InputError when the options do not go together.
    """
    from dlperf_slurm.reports.layouts import load_layout
    from dlperf_slurm.reports.layouts.parts.figures import make_published_figures
    from dlperf_slurm.reports.layouts.parts.output import print_document
    from dlperf_slurm.results.published import read_source

    if options.run is not None:
        raise InputError("report: name either a RUN or --published SOURCE")
    if options.against:
        raise InputError("report: --against goes with a RUN, not with --published SOURCE")
    if options.layout == DEFAULT_LAYOUT:
        raise InputError(f"report: --published goes with --layout {' or '.join(list_layouts())}")
    figures = read_source(options.published)
    document = load_layout(options.layout).lay_out(make_published_figures(figures))
    hardware = " and ".join(dict.fromkeys(figure.hardware for figure in figures))
    print_document(document, f"published: {figures[0].source}", f"on {hardware}", make_console())


def _report_layout(run: "Run", summary: "Summary", layout: str) -> None:
    """Print a run's tables in a layout, and write them beside the report's other files."""
    from dlperf_slurm.jobs.run_directory import REPORT_DIR
    from dlperf_slurm.reports.layouts import load_layout
    from dlperf_slurm.reports.layouts.parts.figures import make_run_figures
    from dlperf_slurm.reports.layouts.parts.output import print_document, serialize
    from dlperf_slurm.reports.run_cells import tabulate_against
    from dlperf_slurm.reports.text import describe_run

    document = load_layout(layout).lay_out(make_run_figures(summary.frame))
    against = tuple(map(tabulate_against, summary.against_tables))
    document = dataclasses.replace(document, tables=document.tables + against)
    title, description = summary.manifest.title, describe_run(summary)
    text = serialize(document, title, description)
    (run.path / REPORT_DIR / f"report-{layout}.md").write_bytes(text.encode())
    print_document(document, title, description, make_console())
