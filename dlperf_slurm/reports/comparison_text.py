"""Comparison of two runs -> a table, its notes, JSON, and JUnit XML for a CI system."""

import dataclasses
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Optional, Union

from dlperf_slurm.jobs.manifest import Manifest
from dlperf_slurm.reports.cells import Cell, Table, join_cells, make_table
from dlperf_slurm.results.compare import MEAN_LATENCY, Comparison, RunComparison
from dlperf_slurm.results.footnotes import Footnotes
from dlperf_slurm.results.labels import find_unit
from dlperf_slurm.results.number_formats import MILLISECONDS, RATIO, Number
from dlperf_slurm.results.significance import EQUIVALENT, NOT_COMPARABLE, UNDECIDED
from dlperf_slurm.stats.median import Interval, compute_median, compute_median_interval

SCHEMA_VERSION = 1

SPEED = Number(".3f")

# what XML 1.0 cannot hold, not even escaped (section 2.2, Char)
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def tabulate_comparison(compared: RunComparison) -> tuple[Table, tuple[str, ...]]:
    """One row per case and quantity, and the notes that its verdicts refer to."""
    notes = Footnotes()
    table = make_table(
        title=f"B {compared.manifest_b.run_id} against A {compared.manifest_a.run_id}",
        header=("case", "quantity", "A", "B", "speed B / A", "95 % interval", "verdict"),
        rows=[_make_row(c, compared.margin, notes) for c in compared.comparisons],
        text_columns=2,
        caption=describe_method(compared),
    )
    return table, tuple(notes.texts)


def describe_method(compared: RunComparison) -> str:
    """What the figures are, and for how much the verdicts stand."""
    lines = [
        "medians over repeats; speed is throughput, or 1 / latency; each interval by itself, and "
        "whichever of both runs varies more",
        _describe_test(compared),
    ]
    runs = (compared.manifest_a, compared.manifest_b)
    if not all(run.is_import or case.blocks > 1 for run in runs for case in run.cases):
        lines.append(
            "within one array job of a run: what its repeats have in common (nodes, the hour) "
            "looks like a difference; protocol.blocks spreads them"
        )
    if compared.limit is not None:
        lines.append(
            "beyond the limit: by the same test B is slower than A would be if that were "
            f"{format_percent(compared.limit)} slower; within it: each is shown not to be, at 95 %"
        )
    return "\n".join(lines)


def _describe_test(compared: RunComparison) -> str:
    if compared.test_count == 0:
        return "verdict: no case has the repeats in both runs that a test takes"
    return (
        "verdict: studentised permutation test (Fligner, Policello), at 95 % for all "
        f"{compared.test_count} together (Holm); equivalent: shown to differ by less than "
        f"{format_percent(compared.margin)}, by both one-sided tests; undecided: neither is shown"
    )


def _make_row(
    comparison: Comparison, margin: float, notes: Footnotes
) -> tuple[Union[Cell, str], ...]:
    texts = [*([comparison.reason] if comparison.reason else []), *comparison.changes]
    is_latency = comparison.quantity == MEAN_LATENCY
    form = MILLISECONDS if is_latency else RATIO
    interval = comparison.interval
    speed = SPEED.limit(interval)
    bounds = [Cell(b, speed) for b in (interval.low, interval.high)] if interval else []
    return (
        comparison.case_id,
        "ms mean latency" if is_latency else find_unit(comparison.model),
        _make_median_cell(comparison.samples_a, form),
        _make_median_cell(comparison.samples_b, form),
        Cell(comparison.speed_ratio, speed, problem="none"),
        join_cells(bounds, " to ") if bounds else Cell(None, problem="none"),
        Cell(describe_verdict(comparison, margin), notes=tuple(map(notes.number, texts))),
    )


def _make_median_cell(samples: Sequence[float], form: Number) -> Cell:
    if not samples:
        return Cell(None, problem="none")
    several = Interval(min(samples), max(samples)) if len(samples) > 1 else None
    bounds = compute_median_interval(samples) or several
    return Cell(compute_median(samples), form, bounds, hides_bounds=True)


def describe_verdict(comparison: Comparison, margin: float) -> str:
    """The verdict in words: "equivalent within 2 %", or "slower, beyond the limit"."""
    text = comparison.verdict
    if comparison.verdict == EQUIVALENT:
        text += f" within {format_percent(margin)}"
    elif comparison.is_within_margin:
        text += f", within {format_percent(margin)}"
    return text + (", beyond the limit" if comparison.is_beyond_limit else "")


def describe_comparison(comparison: Comparison) -> str:
    """One line: what was found of a case, or why nothing was."""
    if comparison.speed_ratio is None:
        return f"{comparison.verdict}: {comparison.reason}"
    interval = comparison.interval
    speed = SPEED.limit(interval)
    text = f"{comparison.verdict}: speed B / A {speed.write(comparison.speed_ratio)}"
    if interval is not None:
        text += f", 95 % interval {speed.write(interval.low)} to {speed.write(interval.high)}"
    return "; ".join(filter(None, [text, comparison.reason, *comparison.changes]))


def format_percent(share: float) -> str:
    return f"{100 * share:g} %"


def serialize_comparison(compared: RunComparison) -> str:
    """All figures in full precision, schema-versioned."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "a": _describe_run(compared.manifest_a),
        "b": _describe_run(compared.manifest_b),
        "limit": compared.limit,
        "margin": compared.margin,
        "test_count": compared.test_count,
        "comparisons": [dataclasses.asdict(c) for c in compared.comparisons],
    }
    return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _describe_run(manifest: Manifest) -> dict[str, str]:
    return {
        name: getattr(manifest, name) for name in ("run_id", "title", "site_name", "created_at")
    }


def serialize_junit(compared: RunComparison) -> str:
    """One test case per comparison: it fails beyond the limit, and is skipped if undecided."""
    comparisons = compared.comparisons
    counts = {
        "tests": len(comparisons),
        "failures": sum(c.is_beyond_limit for c in comparisons),
        "errors": 0,
        "skipped": sum(_is_undecided(c, compared.limit) for c in comparisons),
    }
    name = f"{compared.manifest_a.run_id} -> {compared.manifest_b.run_id}"
    attributes = {"name": _clean(name), **{key: str(count) for key, count in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    for comparison in comparisons:
        suite.append(_make_case(comparison, compared.limit))
    ElementTree.SubElement(suite, "system-out").text = describe_method(compared)
    ElementTree.indent(suite)
    body = ElementTree.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _make_case(comparison: Comparison, limit: Optional[float]) -> ElementTree.Element:
    attributes = {
        "classname": comparison.quantity,
        "name": _clean(comparison.case_id),
        "time": "0",
    }
    case = ElementTree.Element("testcase", attributes)
    text = _clean(describe_comparison(comparison))
    if comparison.is_beyond_limit:
        ElementTree.SubElement(case, "failure", {"message": text})
    elif _is_undecided(comparison, limit):
        ElementTree.SubElement(case, "skipped", {"message": text})
    else:
        ElementTree.SubElement(case, "system-out").text = text
    return case


def _is_undecided(comparison: Comparison, limit: Optional[float]) -> bool:
    if limit is None:
        return comparison.verdict in (UNDECIDED, NOT_COMPARABLE)
    return not (comparison.is_beyond_limit or comparison.is_within_limit)


def _clean(text: str) -> str:
    """Control characters become their Python escapes."""
    return NO_XML.sub(lambda found: ascii(found.group())[1:-1], text)
