"""A run and its outcomes -> the files of its report folder."""

import dataclasses
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.files import FileProblem, folders
from dlperf_slurm.files.owned import replace_files
from dlperf_slurm.files.reading import read_text
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.run_directory import MATRIX_FILE, REPORT_DIR, Run
from dlperf_slurm.reports.formats import Report, list_formats, load_format
from dlperf_slurm.reports.plots import ALL, NONE, Plot
from dlperf_slurm.reports.summarize import Summary, summarize
from dlperf_slurm.results.collect import CaseOutcomes

if TYPE_CHECKING:
    from dlperf_slurm.reports.layouts.parts.document import Document

PLOTS_DIR = "plots"

# what earlier versions wrote, and nobody brings up to date
FORMER_FILES = ("report.parquet",)


def make_folder(run: Run) -> Path:
    """The report folder of a run, which is there afterwards."""
    folder = run.path / REPORT_DIR
    with folders.open_folder(folder, run.path, is_made=True) as descriptor:
        for name in FORMER_FILES:
            with suppress(OSError):
                os.unlink(name, dir_fd=descriptor)
    return folder


def make_report(run: Run, outcomes: Sequence[CaseOutcomes], against: Sequence[str]) -> Report:
    """All that a report shows but the plots; InputError for an unknown published source."""
    try:
        toml = read_text(run.path / MATRIX_FILE, root=run.path)
    except FileNotFoundError:
        # imported logs have none
        toml = ""
    except FileProblem as error:
        toml = f"# {error}\n"
    return Report(summarize(run.manifest, outcomes, against), outcomes, matrix_toml=toml)


def write_files(report: Report, folder: Path, shows_plots: bool = False) -> None:
    """Those of all formats that show plots, or of all others."""
    for report_format in map(load_format, list_formats()):
        if shows_plots == report_format.SHOWS_PLOTS:
            for name, content in report_format.serialize(report).items():
                write_file(folder / name, content, root=folder.parent)


def write_layout(summary: Summary, layout: str, folder: Path) -> "Document":
    """Write a run's tables in a published layout, beside the report's other files."""
    from dlperf_slurm.reports.layouts import load_layout
    from dlperf_slurm.reports.layouts.parts.figures import make_run_figures
    from dlperf_slurm.reports.layouts.parts.output import serialize
    from dlperf_slurm.reports.tables.against import tabulate_against

    document = load_layout(layout).lay_out(make_run_figures(summary.frame))
    against = tuple(map(tabulate_against, summary.against_tables))
    document = dataclasses.replace(document, tables=document.tables + against)
    text = serialize(document, summary.manifest.title, summary.description)
    write_file(folder / f"report-{layout}.md", text.encode(), root=folder.parent)
    return document


def write_plots(report: Report, folder: Path, which: str) -> None:
    """Draw SOME, ALL or NONE of the plots, and write them and the files that show them."""
    plots = _draw(report, which)
    drawn = {f"{plot.name}.svg": plot.svg for plot in plots}
    drawn.update({f"{plot.name}.pdf": plot.pdf for plot in plots})
    replace_files(folder / PLOTS_DIR, folder.parent, drawn)
    write_files(dataclasses.replace(report, plots=plots), folder, shows_plots=True)


def _draw(report: Report, which: str) -> list[Plot]:
    if which == NONE:
        return []
    from dlperf_slurm.reports.plots.run_plots import plot_run

    return plot_run(report.summary, report.cases, is_every_case=which == ALL)
