"""Results of a rehearsal -> rows, and a report of them as Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rehearsal.checks import CHECKS, Problems, Rank
from rehearsal.combinations import ALL_STEPS, Combination

OK, FAILED, CAUGHT, MISSED = "ok", "FAILED", "caught", "MISSED"
MIB = 2**20
# most problems shown of a row; the others are in the log
PROBLEMS_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """A row of a table; `problems` say by check why it failed."""

    name: str
    cells: tuple[str, ...]
    verdict: str
    problems: Problems

    @property
    def is_sound(self) -> bool:
        return self.verdict in (OK, CAUGHT)


ROWS_HEADER = (
    "model",
    "precision",
    "step",
    "GPU",
    "ranks",
    "waits",
    "kernels",
    "products",
    "convolutions",
    "attention",
    "MiB sent",
    "verdict",
)
FAULTS_HEADER = ("fault", "in", "check that must find it", "what it found", "verdict")
NUMBERS_HEADER = (
    "framework",
    "model",
    "precision",
    "read from",
    "products and convolutions",
    "tensor cores of its own kernels",
    "verdict",
)
SEARCHES_HEADER = ("search", "GPU's memory", "trials", "largest batch", "peak", "verdict")


def make_row(name: str, cells: tuple[str, ...], problems: Problems) -> Row:
    """Make a row that is ok if there are no problems."""
    return Row(name, cells, FAILED if problems else OK, problems)


def make_step_row(combination: Combination, ranks: Sequence[Rank], problems: Problems) -> Row:
    """Make a combination's row, with the calls of its last rank; `ranks` is [] if none ran."""
    cells = [
        combination.model,
        combination.precision,
        combination.step,
        f"{combination.capability / 10:.1f}",
        str(combination.ranks),
        *(describe_step(ranks[-1]) if ranks else "-" * 6),
    ]
    return make_row(combination.name, tuple(cells), problems)


def describe_step(rank: Rank) -> list[str]:
    """Return the cells about the first measured step."""
    step = rank.steps[0]

    def count(kind: str) -> int:
        return sum(one.count for one in step if one.kind == kind)

    sent = sum(one.count * one.number("bytes") for one in step if one.kind == "collective")
    return [
        str(count("wait")),
        str(count("kernel")),
        str(count("product")),
        str(count("convolution")),
        describe_attention(rank),
        f"{sent / MIB:.1f}",
    ]


def describe_attention(rank: Rank) -> str:
    if any(True for _ in rank.list_kinds("attention")):
        return "cuDNN"
    for name, word in (("flash_fwd", "flash"), ("fmha", "memory-efficient")):
        if any(name in kernel for kernel in rank.kernels):
            return word
    return "-"


def make_fault_row(fault: str, name: str, check: str, problems: Problems) -> Row:
    """Make the row of a fault: it must be caught by its own check, and others may find it too."""
    found = problems.get(check, [])
    shown = "; ".join(list(dict.fromkeys(found))[:PROBLEMS_SHOWN]) or "nothing"
    return Row(f"{fault}: {name}", (fault, name, check, shown), CAUGHT if found else MISSED, {})


def list_rejected(rows: Iterable[Row]) -> list[str]:
    """List problems, a line for each check of a row."""
    return [
        f"{row.name}: {check}: {problem}"
        for row in rows
        for check, problems in row.problems.items()
        for problem in problems[:PROBLEMS_SHOWN]
    ]


def make_summary(rows: Sequence[Row]) -> str:
    """Count the passed rows of each model and precision, by step."""
    steps = [step for step in ALL_STEPS if any(row.cells[2] == step for row in rows)]
    lines = make_lines(("model", "precision", *steps, "verdict"))
    kinds = {row.cells[:2]: None for row in rows}
    for model, precision in kinds:
        of_kind = [row for row in rows if row.cells[:2] == (model, precision)]
        counts = []
        for step in steps:
            of_step = [row for row in of_kind if row.cells[2] == step]
            sound = sum(row.is_sound for row in of_step)
            counts.append(f"{sound} of {len(of_step)}" if of_step else "-")
        verdict = OK if all(row.is_sound for row in of_kind) else FAILED
        lines.append(join_cells((model, precision, *counts, verdict)))
    return "\n".join(lines) + "\n"


def make_table(header: Sequence[str], rows: Iterable[Row]) -> str:
    lines = make_lines(header)
    lines += [join_cells((*row.cells, row.verdict)) for row in rows]
    return "\n".join(lines) + "\n"


def make_lines(header: Sequence[str]) -> list[str]:
    return [join_cells(header), join_cells(["---"] * len(header))]


def join_cells(cells: Iterable[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"


@dataclass(frozen=True)
class Found:
    """Results of a rehearsal so far: versions, and the rows of each table."""

    facts: dict[str, str] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    searches: list[Row] = field(default_factory=list)
    numbers: list[Row] = field(default_factory=list)
    faults: list[Row] = field(default_factory=list)

    @property
    def every(self) -> list[Row]:
        return [*self.rows, *self.searches, *self.numbers, *self.faults]

    def add_versions(self, framework: str, versions: dict[str, str]) -> None:
        """Add the versions of a framework's packages, by name."""
        self.facts[framework] = ", ".join(f"{name} {one}" for name, one in versions.items())

    def add_numbers(self, row: Row) -> None:
        """Add and print a row of a framework other than PyTorch, which may be that of a fault."""
        print(f"{row.name}: {row.verdict}", flush=True)
        (self.faults if row.verdict in (CAUGHT, MISSED) else self.numbers).append(row)


def make_markdown(found: Found) -> str:
    """Return the report."""
    sound = sum(row.is_sound for row in found.every)
    parts = [
        "# Rehearsal without a GPU\n",
        f"{sound} of {len(found.every)} as they must be.\n",
        "".join(f"- {name}: {value}\n" for name, value in found.facts.items()),
    ]
    if found.rows:
        parts.append(make_summary(found.rows))
    rejected = list_rejected(found.every)
    if rejected:
        parts.append("## What is wrong\n\n" + "".join(f"- {line}\n" for line in rejected))
    tables = (
        ("Searches for the largest batch", SEARCHES_HEADER, found.searches),
        ("Numbers of other frameworks", NUMBERS_HEADER, found.numbers),
        ("Faults put in on purpose", FAULTS_HEADER, found.faults),
        (f"Steps\n\nEach was checked for {', '.join(CHECKS)}.", ROWS_HEADER, found.rows),
    )
    parts += [f"## {title}\n\n{make_table(header, rows)}" for title, header, rows in tables if rows]
    return "\n".join(parts)
