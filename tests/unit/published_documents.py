"""Published documents, from tests/data, and figures in their layouts."""

from pathlib import Path

from builders import make_outcomes, make_planned_case

from dlperf_slurm.published.figures import read_source
from dlperf_slurm.published.layouts import load_layout
from dlperf_slurm.published.layouts.parts import output
from dlperf_slurm.published.layouts.parts.document import Document
from dlperf_slurm.published.layouts.parts.figures import make_published_figures
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes

FOLDER = Path(__file__).parents[1] / "data" / "documents"

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


def read_pipe_tables(name: str) -> list[Table]:
    """Return header and rows of each table of a document, for tables with one line per row."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    tables = []
    for index, line in enumerate(lines):
        if set(line) <= set("-| ") and "---|" in line.replace(" ", ""):
            rows = []
            for row in lines[index + 1 :]:
                if "|" not in row:
                    break
                rows.append(split_row(row))
            tables.append((split_row(lines[index - 1]), rows))
    return tables


def split_row(line: str) -> tuple[str, ...]:
    """Return the cells of a row, with or without a pipe at its ends."""
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def lay_out_published(layout: str, source: str) -> Document:
    return load_layout(layout).lay_out(make_published_figures(read_source(source)))


def lay_out_run(layout: str, *cases: CaseOutcomes) -> Document:
    return output.lay_out_run(layout, analyze(cases))


def make_training(
    topology: str = "1n1g",
    precision: str = "fp32",
    rate: float = 0.0,
    found_batch_size: int = 8,
    **changes: object,
) -> CaseOutcomes:
    """Make a case of seven repeats with this throughput, or a failed one if it is 0."""
    values = {"batch_size_per_device": 8, "repeats": 7, "precision": precision, **changes}
    name = "-".join(str(value) for value in (topology, *values.values()))
    planned = make_planned_case(topology, case_id=name, **values)
    problems = [] if rate else ["out of memory: rank 0: x"] * 7
    rates = [rate] * 7 if rate else []
    return make_outcomes(planned, rates, problems, found_batch_size=found_batch_size)
