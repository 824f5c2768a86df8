"""Checks of a run, a comparison or an acceptance -> JUnit XML, and annotations on GitHub."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass

from dlperf_slurm.contract.record import OK
from dlperf_slurm.plain_text import list_some
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.reports.tables import ShownColumn

# outcomes of checks, as names of JUnit's elements; the text of a passed check is its output
FAILURE, ERROR, SKIPPED, PASSED = "failure", "error", "skipped", "system-out"
_LEVELS = {FAILURE: "error", ERROR: "error", SKIPPED: "warning"}

# characters that XML 1.0 does not allow, even escaped (section 2.2, Char)
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Check:
    """The result of one case or comparison, as a CI system shows it.

    A command with a FAILURE or ERROR among its checks has an exit code other than 0.
    """

    group: str
    name: str
    outcome: str
    text: str


def list_run_checks(summary: Summary) -> list[Check]:
    """List a check per case: failed if a repeat has no valid record, skipped if it was left out."""
    cases, repeats = summary.results.cases, summary.results.frames.repeats
    missing = dict(iter(repeats[repeats.status != OK].groupby("case_id")))
    rates = ShownColumn("samples_per_s").make_cells(cases.assign(marks=[()] * len(cases)))
    checks = []
    for case_id, reason, unit, rate in zip(cases.index, cases.reason, cases.unit, rates):
        if reason:
            checks.append(Check("report", case_id, SKIPPED, f"left out: {reason}"))
        elif case_id in missing:
            own = missing[case_id]
            text = f"{len(own)} repeats have no valid result: {list_some(own.problem.unique())}"
            checks.append(Check("report", case_id, FAILURE, text))
        else:
            checks.append(Check("report", case_id, PASSED, f"{rate.unmarked} {unit}"))
    return checks


def serialize_junit(suite_name: str, checks: Sequence[Check], method: str) -> str:
    """Serialize checks as JUnit XML, as one test suite; `method` says how verdicts are found."""
    outcomes = [check.outcome for check in checks]
    counts = {"failures": FAILURE, "errors": ERROR, "skipped": SKIPPED}
    attributes = {"name": _clean(suite_name), "tests": str(len(checks))}
    attributes.update((key, str(outcomes.count(outcome))) for key, outcome in counts.items())
    suite = ElementTree.Element("testsuite", attributes)
    for check in checks:
        own = {"classname": check.group, "name": _clean(check.name), "time": "0"}
        case = ElementTree.SubElement(suite, "testcase", own)
        element = ElementTree.SubElement(case, check.outcome)
        if check.outcome == PASSED:
            element.text = _clean(check.text)
        else:
            element.set("message", _clean(check.text))
    ElementTree.SubElement(suite, "system-out").text = _clean(method)
    ElementTree.indent(suite)
    body = ElementTree.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _clean(text: str) -> str:
    """Replace characters that XML does not allow by the escapes that Python's `ascii` gives."""
    return NO_XML.sub(lambda found: ascii(found.group())[1:-1], text)


def list_annotations(checks: Sequence[Check]) -> list[str]:
    """List GitHub's workflow commands, "::error ...", of checks that did not pass, worst first."""
    shown = sorted((c for c in checks if c.outcome in _LEVELS), key=lambda c: _LEVELS[c.outcome])
    return [
        f"::{_LEVELS[check.outcome]} title={_escape(check.name, ':,')}::{_escape(check.text)}"
        for check in shown
    ]


def _escape(text: str, more: str = "") -> str:
    """Percent-encode the characters that end a workflow command, and those of `more`."""
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
