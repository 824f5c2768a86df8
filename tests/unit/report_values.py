"""Outcomes of a run with step times and all other parts of a report, for its tests."""

import dataclasses
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy
from support.cases import vary
from unit.builders import make_case, make_manifest, make_planned_case, make_record, name_case

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.jobs.manifest import Manifest, PlannedCase
from dlperf_slurm.reports import summarize as summaries
from dlperf_slurm.reports.cells import Cell, Table
from dlperf_slurm.reports.formats import Report, list_formats, load_format
from dlperf_slurm.reports.plots import Plot
from dlperf_slurm.reports.plots.run_plots import plot_run
from dlperf_slurm.reports.plots.steps import ReadRepeat
from dlperf_slurm.reports.summarize import Summary, TableMaker
from dlperf_slurm.results.case_summary import make_run_frames, summarize_case
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import Column, list_records, select_published
from dlperf_slurm.results.repeats import REPEATS

if TYPE_CHECKING:
    from pandas import DataFrame

STEPS = 20

# must be shown unchanged, wherever a user can write text
HOSTILE = (
    "<script>window.pwned = 1</script><img src=x onerror='window.pwned=1'> & \"q\" ${x}_%~^\\ é"
)


def make_measured(
    framework: str,
    topology: str,
    step_seconds: Sequence[float],
    problems: Sequence[str] = (),
    stalled_step: int = -1,
    **changes: object,
) -> CaseOutcomes:
    """Make a repeat for each of `step_seconds`, with equal steps except the stalled one.

    Rank r takes r thousandths of a step longer than rank 0.
    """
    planned = make_planned_case(
        topology,
        case_id=f"{framework}-resnet50-{topology}-bs8-fp32",
        framework=framework,
        repeats=len(step_seconds) + len(problems),
        **changes,
    )
    outcomes = [
        _make_outcome(planned, repeat, seconds, stalled_step)
        for repeat, seconds in enumerate(step_seconds, start=1)
    ]
    first = len(outcomes) + 1
    outcomes += [
        Outcome(planned.case_id, repeat, None, problem)
        for repeat, problem in enumerate(problems, start=first)
    ]
    return CaseOutcomes(planned, tuple(outcomes))


def _make_outcome(
    planned: PlannedCase, repeat: int, step_seconds: float, stalled_step: int
) -> Outcome:
    topology = parse_topology(planned.axes.topology)
    case = make_case(
        case_id=planned.case_id,
        repeat=repeat,
        framework=planned.axes.framework,
        nodes=topology.nodes,
        devices_per_node=topology.devices_per_node,
        measured_steps=STEPS,
    )
    ranks = numpy.arange(topology.world_size)[:, None]
    seconds = step_seconds * (1 + ranks / 1000) * numpy.ones((1, STEPS))
    if stalled_step >= 0:
        seconds[:, stalled_step] *= 10
    record = make_record(case, float(seconds.sum(axis=1).max()))
    return Outcome(planned.case_id, repeat, record, "", seconds)


def make_cases() -> list[CaseOutcomes]:
    """Make two frameworks on one and two devices: a stall, a lost repeat, a left-out case."""
    seven = [0.1, 0.101, 0.102, 0.103, 0.104, 0.105, 0.106]
    return [
        make_measured("jax", "1n1g", seven, notes=(HOSTILE,)),
        make_measured("jax", "1n2g", [1.2 * s for s in seven], stalled_step=9),
        make_measured("pytorch", "1n1g", [0.9 * s for s in seven]),
        make_measured("pytorch", "1n2g", [0.1, 0.11], [f"failed: {HOSTILE}"]),
        make_measured("pytorch", "4n8g", [], reason=f"the site has 2 nodes {HOSTILE}"),
    ]


def summarize(
    manifest: Manifest, cases: Sequence[CaseOutcomes], makers: Sequence[TableMaker] = ()
) -> Summary:
    return summaries.summarize(manifest, analyze(cases), makers)


def summarize_cases(cases: Sequence[CaseOutcomes], **changes: object) -> Summary:
    return summarize(make_manifest(**changes), cases)


def make_reader(cases: Sequence[CaseOutcomes]) -> ReadRepeat:
    """Return a function that reads repeats from these cases, as `Report.read_repeat` from files."""
    outcomes = {(one.case_id, one.repeat): one for case in cases for one in case.outcomes}
    return lambda case_id, repeat: outcomes[case_id, repeat]


def plot_cases(cases: Sequence[CaseOutcomes], is_every_case: bool = False) -> list[Plot]:
    return plot_run(summarize_cases(cases), make_reader(cases), is_every_case)


def write_rows(table: Table) -> tuple[tuple[str, ...], ...]:
    """Return the cells of a table as plain text."""
    return tuple(tuple(cell.write() for cell in row) for row in table.rows)


def write_report(name: str, summary: Summary) -> str:
    """Return the text that a format makes of a run without outcomes."""
    (content,) = load_format(name).serialize(Report(summary)).values()
    return content.decode()


def rename(outcomes: CaseOutcomes, **changes: object) -> CaseOutcomes:
    """Return the same outcomes for a case with other axes, and their case id."""
    case = name_case(vary(outcomes.case, **{"case_id": "", **changes}))
    own = (dataclasses.replace(one, case_id=case.case_id) for one in outcomes.outcomes)
    return dataclasses.replace(outcomes, case=case, outcomes=tuple(own))


def list_rows(*cases: CaseOutcomes) -> list[Any]:
    """Return the rows of the frame of cases, including hidden columns; missing values are None."""
    return [SimpleNamespace(**row) for row in list_records(analyze(cases).cases)]


def make_repeat_frame(cases: Sequence[CaseOutcomes]) -> "DataFrame":
    """Return the columns of these cases' repeats as in files."""
    return select_published(REPEATS, make_run_frames([*map(summarize_case, cases)]).repeats)


def list_dtypes(columns: Iterable[Column]) -> dict[str, str]:
    """Return the pandas dtype of each published column, in order."""
    return {name: column.dtype for column in columns for name in column.published_names}


def find_tables(summary: Summary, kind: str) -> list[Table]:
    """Return the tables that one declaration made."""
    return [table for table in summary.tables if table.kind == kind]


def read_column(table: Table, header: str) -> list[Cell]:
    """Return the cells below a header."""
    return [row[table.header.index(header)] for row in table.rows]


def read_marks(summary: Summary, row: Sequence[Cell]) -> list[str]:
    """Return the footnotes of the cells of a row."""
    return [summary.footnotes[number - 1] for cell in row for number in cell.notes]


def list_report_files(page: str = "report.html") -> list[str]:
    """List the files that all formats write into a report's folder, with this name of the page."""
    report = Report(summarize_cases([]))
    files = [file for name in list_formats() for file in load_format(name).serialize(report)]
    return [page if file == "report.html" else file for file in files]
