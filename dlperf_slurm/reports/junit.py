"""Comparison of two runs -> JUnit XML, for the test reports of a CI system."""

import re
import xml.etree.ElementTree as ElementTree

from dlperf_slurm.reports.comparison_text import describe_comparison, describe_method
from dlperf_slurm.results.compare import Comparison, RunComparison

# what XML 1.0 cannot hold, not even escaped (section 2.2, Char)
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def serialize_junit(compared: RunComparison) -> str:
    """One test case per comparison: it fails beyond the limit, and is skipped if undecided."""
    comparisons = compared.comparisons
    counts = {
        "tests": len(comparisons),
        "failures": sum(c.is_beyond_limit for c in comparisons),
        "errors": 0,
        "skipped": sum(not c.is_decided for c in comparisons),
    }
    name = f"{compared.manifest_a.run_id} -> {compared.manifest_b.run_id}"
    attributes = {"name": _clean(name), **{key: str(count) for key, count in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    for comparison in comparisons:
        suite.append(_make_case(comparison))
    ElementTree.SubElement(suite, "system-out").text = describe_method(compared)
    ElementTree.indent(suite)
    body = ElementTree.tostring(suite, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _make_case(comparison: Comparison) -> ElementTree.Element:
    attributes = {
        "classname": comparison.quantity,
        "name": _clean(comparison.case_id),
        "time": "0",
    }
    case = ElementTree.Element("testcase", attributes)
    text = _clean(describe_comparison(comparison))
    if comparison.is_beyond_limit:
        ElementTree.SubElement(case, "failure", {"message": text})
    elif not comparison.is_decided:
        ElementTree.SubElement(case, "skipped", {"message": text})
    else:
        ElementTree.SubElement(case, "system-out").text = text
    return case


def _clean(text: str) -> str:
    """Control characters become their Python escapes."""
    return NO_XML.sub(lambda found: ascii(found.group())[1:-1], text)
