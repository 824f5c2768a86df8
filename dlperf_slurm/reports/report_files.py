"""A run -> the files in its report folder."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Optional

from dlperf_slurm.files import FileProblem, folders
from dlperf_slurm.files.owned import replace_files
from dlperf_slurm.files.reading import read_text
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.run_directory import MATRIX_FILE, Run
from dlperf_slurm.jobs.run_files import FileState, find_files
from dlperf_slurm.reports.formats import Report, list_formats, load_format
from dlperf_slurm.reports.plots import (
    ALL,
    FILES,
    NONE,
    SOME,
    Plot,
    draw_for_page,
    list_for_page,
    make_name,
)
from dlperf_slurm.reports.report_cache import read_results
from dlperf_slurm.reports.step_files import STEPS_DIR, write_step_files
from dlperf_slurm.reports.summarize import TableMaker, summarize
from dlperf_slurm.reports.tables.profiles import list_profiles, make_profile_table
from dlperf_slurm.results.collect import find_attempts
from dlperf_slurm.results.proofs import load_proofs, name_proofs

PLOTS_DIR = "plots"
# suffix of file names by the choice of plots
_VARIANTS = {SOME: "", FILES: "", ALL: "-all", NONE: "-none"}


def make_folder(run: Run) -> Path:
    """Create and return the report folder of a run."""
    folders.make_folder(run.report_dir, run.report_dir.parent)
    return run.report_dir


def has_step_files(run: Run) -> bool:
    """Return whether an earlier report wrote step times to files, so that the next does too."""
    return (run.report_dir / STEPS_DIR).exists()


def make_report(
    run: Run,
    against: Mapping[str, TableMaker],
    has_steps: bool = False,
    found: Optional[list[FileState]] = None,
) -> Report:
    """Make a report without plots; with `has_steps`, write its step times to the report folder.

    `against` has functions that make additional tables, by the name of what the run is compared
    with, which becomes part of the report's file names. `found` is what `find_files` returned, if
    the caller has called it. Raises FileProblem if step times cannot be written.
    """
    try:
        toml = read_text(run.path / MATRIX_FILE, root=run.path)
    except FileNotFoundError:
        # imported logs have no matrix
        toml = ""
    except FileProblem as error:
        toml = f"# {error}\n"
    found = found or find_files(run.path)
    attempts = find_attempts(run)
    results = name_proofs(read_results(attempts, found), load_proofs(run.path.parent))
    if has_steps:
        write_step_files(attempts, make_folder(run))
    makers = [*against.values()]
    if profiles := list_profiles(run):
        makers.append(partial(make_profile_table, profiles))
    summary = summarize(run.manifest, results, makers)
    variant = f"-{make_name('against', *against)}" if against else ""
    cases = {case.case_id: case for case in run.manifest.cases}
    return Report(
        summary,
        matrix_toml=toml,
        variant=variant,
        read_repeat=lambda case_id, repeat: attempts.read(cases[case_id], repeat),
    )


def write_files(report: Report, folder: Path, shows_plots: bool = False) -> list[Path]:
    """Write the report's files, with `Report.variant` in their names, and return their paths.

    With `shows_plots` these are the formats that show plots, else all others.
    """
    written = []
    for report_format in map(load_format, list_formats()):
        if shows_plots == report_format.SHOWS_PLOTS:
            for name, content in report_format.serialize(report).items():
                plain = folder / name
                path = plain.with_name(f"{plain.stem}{report.variant}{plain.suffix}")
                write_file(path, content, root=folder.parent)
                written.append(path)
    return written


def write_plots(report: Report, folder: Path, which: str) -> list[Path]:
    """Draw plots, write them and the reports that show them; return the paths of the reports.

    `which` is one of the CHOICES of `reports.plots`: SOME plots (the plain report), ALL or NONE
    (reports with file names of their own), or FILES (as SOME, and plots in a separate folder).
    """
    plots, ending = draw_plots(report, which), _VARIANTS[which]
    folders = {SOME: [""], FILES: ["", "-files"], ALL: ["-all"], NONE: []}[which]
    for name in folders:
        drawn = plots if name else list_for_page(plots)
        files = {file: content for plot in drawn for file, content in plot.files.items()}
        replace_files(folder / f"{PLOTS_DIR}{name}", folder.parent, files)
    variant = f"{report.variant}-plots{ending}" if ending else report.variant
    shown = replace(report, plots=plots, variant=variant)
    return write_files(shown, folder, shows_plots=True)


def draw_plots(report: Report, which: str) -> list[Plot]:
    """Draw the plots of `which`, one of the CHOICES; [] for NONE, or without a `read_repeat`."""
    if which == NONE or report.read_repeat is None:
        return []
    from dlperf_slurm.reports.plots.run_plots import plot_run

    with draw_for_page(which == SOME):
        return plot_run(report.summary, report.read_repeat, which == ALL)
