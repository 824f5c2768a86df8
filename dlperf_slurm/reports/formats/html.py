"""Report -> one HTML file that loads nothing, to open or to send."""

import base64
import hashlib
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from markupsafe import Markup

from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.formats.page.figures import inline_svg
from dlperf_slurm.reports.formats.page.provenance import (
    tabulate_missing,
    tabulate_provenance,
)
from dlperf_slurm.reports.plots import Plot
from dlperf_slurm.reports.summarize import Summary, tabulate_run
from dlperf_slurm.results.collect import CaseOutcomes

FILE_NAME = "report.html"
SHOWS_PLOTS = True

_ASSETS = Path(__file__).with_name("page") / "assets"

# a longer text is folded where there is no room
LONGEST_LINE = 36
# a longer table scrolls within the page
MOST_ROWS = 40


@dataclass(frozen=True)
class Mark:
    """A footnote's number in a cell, with the id by which the footnote links back to it."""

    number: int
    reference_id: str


@dataclass(frozen=True)
class HtmlTable:
    """A table with its id; of each cell the marks. The first cell of a row is its heading."""

    id: str
    table: Table
    rows: tuple[tuple[tuple[Cell, tuple[Mark, ...]], ...], ...]

    @property
    def title(self) -> str:
        return self.table.title

    @property
    def is_tall(self) -> bool:
        return len(self.rows) > MOST_ROWS


@dataclass
class References:
    """Ids of the marks that refer to each footnote, in their order on the page."""

    ids: dict[int, list[str]] = field(default_factory=dict)

    def add(self, number: int) -> Mark:
        ids = self.ids.setdefault(number, [])
        ids.append(f"mark-{number}-{len(ids) + 1}")
        return Mark(number, ids[-1])


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
    references = References()
    missing = _make_tables(tabulate_missing(report.cases), "missing", references)
    sections = _make_sections(summary, report.plots, references)
    script = (_ASSETS / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return load_template("report.html.j2").render(
        summary=summary,
        manifest=summary.manifest,
        findings=summary.findings,
        doubts=bool(summary.banner) or any(finding.is_doubt for finding in summary.findings),
        facts=_list_facts(report),
        missing=missing,
        sections=sections,
        steps=_make_step_sections(report.plots, report.cases),
        footnotes=[
            (number, text, references.ids.get(number, []))
            for number, text in enumerate(summary.footnotes, start=1)
        ],
        method=summary.method,
        provenance=_make_tables(tabulate_provenance(report.cases), "provenance", references),
        command=shlex.join(summary.manifest.command),
        matrix_toml=report.matrix_toml,
        style=Markup((_ASSETS / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=digest,
    )


def load_template(name: str) -> jinja2.Template:
    """One of the page's templates."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["sort_key"] = find_sort_key
    # markup of our own making
    environment.filters["inline_svg"] = lambda plot: Markup(inline_svg(plot))
    environment.globals["longest_line"] = LONGEST_LINE
    return environment.get_template(name)


def _make_tables(tables: Iterable[Table], name: str, references: References) -> list[HtmlTable]:
    return [
        make_html_table(table, f"{name}-{number}", references)
        for number, table in enumerate(tables, start=1)
    ]


def make_html_table(table: Table, table_id: str, references: References) -> HtmlTable:
    rows = (
        tuple((cell, tuple(map(references.add, cell.marks))) for cell in row) for row in table.rows
    )
    return HtmlTable(table_id, table, tuple(rows))


def find_sort_key(cell: Cell) -> str:
    """The figure in full; empty where there is none, which is sorted behind all others."""
    return "" if cell.figure is None else repr(cell.figure)


def _make_sections(
    summary: Summary, plots: Sequence[Plot], references: References
) -> list[Section]:
    """Tables in the order of all reports; a figure is shown at the first one of its subject."""
    left = list(plots)
    sections = []
    for table in _make_tables(tabulate_run(summary), "table", references):
        own = [plot for plot in left if plot.subject == table.title]
        left = [plot for plot in left if plot.subject != table.title]
        sections.append(Section(table, tuple(own)))
    return sections


def _make_step_sections(plots: Sequence[Plot], cases: Sequence[CaseOutcomes]) -> list[StepSection]:
    by_case: dict[str, list[Plot]] = {c.case.case_id: [] for c in cases}
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
    manifest = report.summary.manifest
    records = [record for outcomes in report.cases for record in outcomes.records]
    facts = [
        ("Run", manifest.run_id),
        ("Site", f"{manifest.site_name} ({manifest.scheduler})"),
        ("Submitted", f"{manifest.created_at} by {manifest.created_by} on {manifest.created_on}"),
        ("Tool", f"dlperf_slurm {manifest.tool_version} {manifest.tool_git}".strip()),
        ("Models", _join(c.case.model for c in report.cases)),
        ("Frameworks", _join(c.case.axes.framework for c in report.cases)),
        ("Topologies", _join(c.case.axes.topology for c in report.cases)),
        ("Precisions", _join(c.case.axes.precision for c in report.cases)),
    ]
    if manifest.is_import:
        facts[1:3] = [("Imported", f"by {manifest.created_by} on {manifest.created_on}")]
        facts.insert(2, ("Measured", "not told by the logs"))
    records = [record for record in records if record.started_at]
    if records:
        facts = [fact for fact in facts if fact[0] != "Measured"]
        first, last = min(r.started_at for r in records), max(r.ended_at for r in records)
        # the date once, where it is the same
        end = last[11:] if last[:10] == first[:10] else last
        facts.insert(2 if manifest.is_import else 3, ("Measured", f"{first} to {end}"))
    return facts


def _join(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))
