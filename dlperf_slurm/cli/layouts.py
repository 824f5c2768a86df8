"""`report` in the layout of a published document: of a run, or of published figures themselves."""

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlperf_slurm.cli.output import make_console
from dlperf_slurm.errors import InputError
from dlperf_slurm.reports.layouts import DEFAULT_LAYOUT, LAYOUTS

if TYPE_CHECKING:
    from dlperf_slurm.jobs.run_directory import Run
    from dlperf_slurm.reports.summarize import Summary
    from dlperf_slurm.results.collect import CaseOutcomes


def add_layout_options(parser: argparse.ArgumentParser) -> None:
    """What `report` takes beside the run."""
    parser.add_argument(
        "--layout",
        choices=(DEFAULT_LAYOUT, *LAYOUTS),
        default=DEFAULT_LAYOUT,
        help=f"whose tables to make ({DEFAULT_LAYOUT})",
    )
    parser.add_argument(
        "--published", metavar="SOURCE", help="lay out published figures instead of a run's"
    )


def print_published(options: argparse.Namespace) -> None:
    """`report --published SOURCE --layout NAME`: needs no run and writes nothing."""
    from dlperf_slurm.reports.layouts import load_layout
    from dlperf_slurm.reports.layouts.figures import make_published_figures
    from dlperf_slurm.reports.layouts.output import print_document
    from dlperf_slurm.results.published import read_source

    if options.run is not None:
        raise InputError("report: name either a RUN or --published SOURCE")
    if options.against:
        raise InputError("report: --against goes with a RUN, not with --published SOURCE")
    if options.layout == DEFAULT_LAYOUT:
        raise InputError(f"report: --published goes with --layout {' or '.join(LAYOUTS)}")
    figures = read_source(options.published)
    document = load_layout(options.layout).lay_out(make_published_figures(figures))
    hardware = " and ".join(dict.fromkeys(figure.hardware for figure in figures))
    print_document(document, f"published: {figures[0].source}", f"on {hardware}", make_console())


def report_layout(
    run: "Run", summary: "Summary", outcomes: "Sequence[CaseOutcomes]", layout: str
) -> None:
    """Print a run's tables in a layout, and write them beside the report's other files."""
    from dlperf_slurm.jobs.run_directory import REPORT_DIR
    from dlperf_slurm.reports.layouts import load_layout
    from dlperf_slurm.reports.layouts.figures import make_run_figures
    from dlperf_slurm.reports.layouts.output import print_document, serialize
    from dlperf_slurm.reports.text import describe_run, make_against_grid

    document = load_layout(layout).lay_out(make_run_figures(outcomes))
    against = tuple(map(make_against_grid, summary.against_tables))
    document = dataclasses.replace(document, grids=document.grids + against)
    title, description = summary.manifest.title, describe_run(summary)
    text = serialize(document, title, description)
    (run.path / REPORT_DIR / f"report-{layout}.md").write_bytes(text.encode())
    print_document(document, title, description, make_console())
