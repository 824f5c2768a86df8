"""Results of a rehearsal -> rows, and a report of them as Markdown."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rehearsal.checks import CHECKS, Problems, Rank

OK, FAILED, CAUGHT, MISSED = "ok", "FAILED", "caught", "MISSED"
MIB = 2**20
# most problems shown of a row; the others are in the log
PROBLEMS_SHOWN = 3


@dataclass(frozen=True)
class Row:
    """A row of the report: what was seen, and by check why it failed."""

    name: str
    seen: str
    verdict: str
    problems: Problems

    @property
    def is_sound(self) -> bool:
        return self.verdict in (OK, CAUGHT)


def make_row(name: str, seen: str, problems: Problems, fault: str = "", check: str = "") -> Row:
    """Make a row that is ok without problems; a fault must be caught by its own check."""
    if not fault:
        return Row(name, seen, FAILED if problems else OK, problems)
    found = problems.get(check, [])
    shown = "; ".join(list(dict.fromkeys(found))[:PROBLEMS_SHOWN]) or "nothing"
    return Row(f"{fault}: {name}", f"{check}: {shown}", CAUGHT if found else MISSED, {})


def describe_step(ranks: Sequence[Rank]) -> str:
    """Count the calls of the last rank's first measured step; '-' if no rank ran."""
    if not ranks:
        return "-"
    step = ranks[-1].steps[0]
    counts: Counter[str] = Counter()
    for one in step:
        counts[one.kind] += one.count
    sent = sum(one.count * one.number("bytes") for one in step if one.kind == "collective")
    return f"{join_counts(counts)}; {sent / MIB:.1f} MiB sent"


def join_counts(counts: Mapping[str, int]) -> str:
    """Format counts as "4 product, 1 wait", or "-" for none."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "-"


def list_rejected(rows: Iterable[Row]) -> list[str]:
    """List problems, a line for each check of a row."""
    return [
        f"{row.name}: {check}: {problem}"
        for row in rows
        for check, problems in row.problems.items()
        for problem in problems[:PROBLEMS_SHOWN]
    ]


def make_markdown(rows: Sequence[Row], facts: Mapping[str, str]) -> str:
    """Return the report."""
    cells = [("what", "seen", "verdict"), ("---",) * 3]
    cells += [(row.name, row.seen, row.verdict) for row in rows]
    escaped = ([one.replace("|", "\\|").replace("\n", " ") for one in line] for line in cells)
    parts = [
        "# Rehearsal without a GPU\n",
        f"{join_counts(Counter(row.verdict for row in rows))}. Steps of PyTorch were checked for "
        f"{', '.join(CHECKS)}.\n",
        "".join(f"- {name}: {value}\n" for name, value in facts.items()),
        "".join(f"- {line}\n" for line in list_rejected(rows)),
        "".join(f"| {' | '.join(line)} |\n" for line in escaped),
    ]
    return "\n".join(part for part in parts if part)
