"""Report -> one HTML file that loads nothing, to open or to send."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.formats.page.figures import inline_svg
from dlperf_slurm.reports.formats.page.overview import make_sections
from dlperf_slurm.reports.formats.page.provenance import tabulate_missing, tabulate_provenance
from dlperf_slurm.reports.formats.page.reproduce import write_command
from dlperf_slurm.reports.formats.page.tables import HtmlTable, make_html_tables
from dlperf_slurm.reports.formats.page.words import GLOSSARY, explain, explain_topology
from dlperf_slurm.reports.plots import KINDS_OF_PAGE, Plot
from dlperf_slurm.reports.summarize import Summary, tabulate_run
from dlperf_slurm.reports.tables.overview import (
    Overview,
    make_overviews,
    name_cases,
    tabulate_cases,
)
from dlperf_slurm.reports.tables.training import PRECISIONS, THROUGHPUT
from dlperf_slurm.results.columns import TIME_FORMAT

FILE_NAME = "report.html"
SHOWS_PLOTS = True

_ASSETS = Path(__file__).with_name("page") / "assets"

# a longer text is folded where there is no room
LONGEST_LINE = 36
# rows of a table of facts that are shown without being asked for
MOST_UNFOLDED = 12


@dataclass(frozen=True)
class Section:
    """A table with the figures that show it."""

    table: HtmlTable
    figures: tuple[Plot, ...]


@dataclass(frozen=True)
class StepSection:
    """A case with the figures of its steps."""

    id: str
    case_id: str
    figures: tuple[Plot, ...]


def serialize(report: Report) -> dict[str, bytes]:
    return {FILE_NAME: make_page(report).encode()}


def make_page(report: Report) -> str:
    """HTML 5; every text is escaped, and only the page's own script can run."""
    summary = report.summary
    notes = summary.footnotes
    overviews = make_overviews(summary.results, summary.marks)
    script = (_ASSETS / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return load_template("report.html.j2").render(
        summary=summary,
        manifest=summary.manifest,
        findings=summary.findings,
        doubts=bool(summary.banner) or any(finding.is_doubt for finding in summary.findings),
        facts=_list_facts(report),
        overviews=make_sections(overviews, notes),
        missing=make_html_tables(tabulate_missing(summary.results), "missing", notes),
        sections=_make_sections(summary, overviews, report.plots),
        steps=_make_step_sections(report.plots, summary.results.cases.index),
        method=summary.method,
        provenance=make_html_tables(tabulate_provenance(summary.results), "provenance", notes),
        glossary=GLOSSARY,
        command=write_command(summary.manifest, report.matrix_toml),
        matrix_toml=report.matrix_toml,
        style=Markup((_ASSETS / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=digest,
    )


@cache
def load_template(name: str) -> jinja2.Template:
    """One of the page's templates; it is compiled once in a process."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sort_key"] = find_sort_key
    # no line begins with a percent sign
    environment.filters["hold_units"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    environment.filters["explain"] = explain
    environment.filters["explain_topology"] = explain_topology
    # markup of our own making
    environment.filters["inline_svg"] = lambda plot: Markup(inline_svg(plot))
    environment.globals["longest_line"] = LONGEST_LINE
    environment.globals["most_unfolded"] = MOST_UNFOLDED
    return environment.get_template(name)


def find_sort_key(cell: Cell) -> str:
    """The figure in full; empty where there is none, which is sorted behind all others."""
    return "" if cell.figure is None else repr(cell.figure)


def _make_sections(
    summary: Summary, overviews: Sequence[Overview], plots: Sequence[Plot]
) -> list[Section]:
    """The tables below the overviews; a figure is shown at the first one of its subject.

    Those of throughput and of precisions are one table per model, and not one for each batch size
    and framework.
    """
    joined = _find_joined(summary, overviews)
    tables: list[Table] = [tabulate_cases(o) for o in overviews if not o.is_inference]
    tables += [table for table in tabulate_run(summary) if table.title not in joined]
    by_title: dict[str, list[Plot]] = {}
    for plot in plots:
        if not plot.name.startswith(KINDS_OF_PAGE):
            overview = joined.get(plot.subject)
            if overview is None:
                by_title.setdefault(plot.subject, []).append(plot)
            else:
                # the joined table has several of them, of which each says what it is about
                title = f"{plot.title}: {plot.subject}"
                by_title.setdefault(name_cases(overview), []).append(replace(plot, title=title))
    # a figure is shown at the first table of its title
    return [
        Section(table, tuple(by_title.pop(table.title, ())))
        for table in make_html_tables(tables, "table", summary.footnotes)
    ]


def _find_joined(summary: Summary, overviews: Sequence[Overview]) -> dict[str, Overview]:
    """The titles of tables whose cases all stand in a model's one table of training."""
    by_model = {overview.model: overview for overview in overviews if not overview.is_inference}
    joined = (table for table in summary.tables if table.kind in (THROUGHPUT.name, PRECISIONS))
    return {table.title: by_model[table.model] for table in joined}


def _make_step_sections(plots: Sequence[Plot], case_ids: Iterable[str]) -> list[StepSection]:
    by_case: dict[str, list[Plot]] = {case_id: [] for case_id in case_ids}
    for plot in plots:
        if plot.subject in by_case:
            by_case[plot.subject].append(plot)
    found = [(case_id, figures) for case_id, figures in by_case.items() if figures]
    return [
        StepSection(f"steps-{number}", case_id, tuple(figures))
        for number, (case_id, figures) in enumerate(found, start=1)
    ]


def _list_facts(report: Report) -> list[tuple[str, str]]:
    """What, where and when, for the top of the report."""
    manifest, cases = report.summary.manifest, report.summary.results.cases
    facts = [
        ("Run", manifest.run_id),
        ("Site", f"{manifest.site_name} ({manifest.scheduler})"),
        ("Submitted", f"{manifest.created_at} by {manifest.created_by} on {manifest.created_on}"),
        ("Tool", f"dlperf_slurm {manifest.tool_version} {manifest.tool_git}".strip()),
        ("Models", _join(cases.model)),
        ("Frameworks", _join(cases.framework)),
        ("Topologies", _join(cases.topology)),
        ("Precisions", _join(cases.precision)),
    ]
    if manifest.is_import:
        facts[1:3] = [("Imported", f"by {manifest.created_by} on {manifest.created_on}")]
        facts.insert(2, ("Measured", "not told by the logs"))
    timed = report.summary.results.frames.repeats.dropna(subset=["started_at", "ended_at"])
    if len(timed):
        facts = [fact for fact in facts if fact[0] != "Measured"]
        ends = (timed.started_at.min(), timed.ended_at.max())
        first, last = (end.strftime(TIME_FORMAT) for end in ends)
        # the date once, where it is the same
        end = last[11:] if last[:10] == first[:10] else last
        facts.insert(2 if manifest.is_import else 3, ("Measured", f"{first} to {end}"))
    return facts


def _join(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
