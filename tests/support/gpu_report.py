"""Lines of the checks on GPUs -> outcomes, and a report of them as Markdown and JSON."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

PASSED = "passed"
FAILED = "failed"
NOT_RUN = "not run"
# a check that has no verdict yet, in the lines of support/gpu_outcomes.py
RUNNING = "running"
# beginning of a skip reason that does not count against the machine
NOT_FOR_THIS_GPU = "not for this GPU: "
MEASURED = "measured"
LONGEST_REASON = 3000
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Measured:
    """A measured value and its bound in words; '' for a value without a bound."""

    what: str
    value: float
    unit: str
    bound: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check; `is_excused` if this machine does not have to run it."""

    part: str
    check: str
    verdict: str
    measured: tuple[Measured, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    is_excused: bool = False


def read_outcomes(part: str, lines: Iterable[str], end: str) -> list[Outcome]:
    """Read outcomes from lines of support/gpu_outcomes.py; the last line of a check counts.

    A check that was running fails, with `end` as its reason.
    """
    latest = {told["check"]: told for told in map(json.loads, lines)}
    return [
        Outcome(part, check, FAILED, reason=end)
        if told["verdict"] == RUNNING
        else Outcome(
            part,
            check,
            told["verdict"],
            tuple(Measured(**one) for one in told["measured"]),
            told["reason"],
            told["seconds"],
            is_excused=told["reason"].startswith(NOT_FOR_THIS_GPU),
        )
        for check, told in latest.items()
    ]


def find_verdict(outcomes: Iterable[Outcome]) -> str:
    """Return PASSED if at least one check passed and none failed or is missing without excuse.

    NOT_RUN if no check ran, else FAILED.
    """
    outcomes = list(outcomes)
    if any(outcome.verdict == FAILED for outcome in outcomes):
        return FAILED
    if not any(outcome.verdict == PASSED for outcome in outcomes):
        return NOT_RUN
    missing = any(one.verdict == NOT_RUN and not one.is_excused for one in outcomes)
    return FAILED if missing else PASSED


def conclude(outcomes: Sequence[Outcome], gpus: int) -> str:
    """Summarize in one sentence what was shown, and on how many GPUs."""
    counts = {
        verdict: sum(outcome.verdict == verdict for outcome in outcomes)
        for verdict in (PASSED, FAILED, NOT_RUN)
    }
    where = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    figures = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    verdict = find_verdict(outcomes)
    if verdict == NOT_RUN:
        return f"Nothing was shown: no check could run ({figures})."
    if gpus == 0:
        return f"Tried on a CPU, which shows nothing of a GPU: {figures}."
    words = "Accepted" if verdict == PASSED else "Not accepted"
    return f"{words} on {where}: {figures}."


def make_json(machine: dict[str, Any], outcomes: Sequence[Outcome], facts: dict[str, Any]) -> str:
    """Return the report as JSON."""
    report = {
        "schema_version": SCHEMA_VERSION,
        "verdict": find_verdict(outcomes),
        "conclusion": conclude(outcomes, machine["gpus"]),
        **facts,
        "machine": machine,
        "outcomes": [asdict(outcome) for outcome in outcomes],
    }
    return json.dumps(report, indent=1) + "\n"


def make_markdown(
    machine: dict[str, Any], outcomes: Sequence[Outcome], facts: dict[str, Any]
) -> str:
    """Return the report as Markdown."""
    lines = ["# Acceptance on GPUs", "", conclude(outcomes, machine["gpus"]), "", "## Where", ""]
    told = {**facts, **{key: value for key, value in machine.items() if key != "packages"}}
    told.update(told.pop("facts", {}))
    told.update(told.pop("packages_by_environment", {}))
    lines += [f"- {key.replace('_', ' ')}: {_write_value(value)}" for key, value in told.items()]
    lines += ["", "## Checks", "", "| part | check | verdict | measured | bound | s |"]
    lines += ["|---|---|---|---|---|---:|"]
    for outcome in outcomes:
        lines += [f"| {' | '.join(map(_escape, cells))} |" for cells in _list_rows(outcome)]
    checks = group_by_reason(outcomes)
    if checks:
        lines += ["", "## Why"]
    for reason, names in checks.items():
        lines += ["", *(f"- {name}" for name in names), ""]
        lines += [f"      {line}" for line in reason.splitlines()]
    return "\n".join(lines) + "\n"


def group_by_reason(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """Group the checks that have not passed, as "part: check, verdict", by their reason."""
    checks: dict[str, list[str]] = {}
    for one in outcomes:
        if one.verdict != PASSED:
            name = f"{one.part}: {one.check}, {one.verdict}"
            checks.setdefault(one.reason or "no reason told", []).append(name)
    return checks


def _list_rows(outcome: Outcome) -> list[list[str]]:
    """Return a row for the check with its first value, and one for each further value."""
    values = [
        [f"{one.what}: {one.value:.4g} {one.unit}".strip(), one.bound] for one in outcome.measured
    ]
    first, *others = values or [["", ""]]
    name = [outcome.part, outcome.check, outcome.verdict]
    return [[*name, *first, f"{outcome.seconds:.1f}"], *(["", "", "", *one, ""] for one in others)]


def _write_value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {text}" for key, text in value.items()) or "-"
    return str(value)


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")
