"""A run and its outcomes -> the files of its report folder."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    folder.mkdir(exist_ok=True)
    for name in FORMER_FILES:
        (folder / name).unlink(missing_ok=True)
    return folder


def make_report(run: Run, outcomes: Sequence[CaseOutcomes], against: Sequence[str]) -> Report:
    """All that a report shows but the plots; InputError for an unknown published source."""
    matrix = run.path / MATRIX_FILE
    # imported logs have none
    toml = matrix.read_text(encoding="utf-8") if matrix.is_file() else ""
    return Report(summarize(run.manifest, outcomes, against), outcomes, matrix_toml=toml)


def write_files(report: Report, folder: Path, shows_plots: bool = False) -> None:
    """Those of all formats that show plots, or of all others."""
    for report_format in map(load_format, list_formats()):
        if shows_plots == report_format.SHOWS_PLOTS:
            for name, content in report_format.serialize(report).items():
                (folder / name).write_bytes(content)


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
    (folder / f"report-{layout}.md").write_bytes(text.encode())
    return document


def write_plots(report: Report, folder: Path, which: str) -> None:
    """Draw SOME, ALL or NONE of the plots, and write them and the files that show them."""
    plots_dir = folder / PLOTS_DIR
    plots = _draw(report, which)
    # in place of those of an earlier report
    for old in [*plots_dir.glob("*.svg"), *plots_dir.glob("*.pdf")]:
        old.unlink()
    for plot in plots:
        plots_dir.mkdir(exist_ok=True)
        (plots_dir / f"{plot.name}.svg").write_bytes(plot.svg)
        (plots_dir / f"{plot.name}.pdf").write_bytes(plot.pdf)
    write_files(dataclasses.replace(report, plots=plots), folder, shows_plots=True)


def _draw(report: Report, which: str) -> list[Plot]:
    if which == NONE:
        return []
    from dlperf_slurm.reports.plots.run_plots import plot_run

    return plot_run(report.summary, report.cases, is_every_case=which == ALL)
