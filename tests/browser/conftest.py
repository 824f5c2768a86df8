"""A real Chromium, headless and without network, with a report open in it.

pip install playwright
apt-get install chromium          # or set CHROMIUM=/path/to/chromium
python -m pytest tests/browser
"""

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.requirements import find_chromium, find_missing_browser
from unit.report_values import HOSTILE, make_cases, plot_cases, summarize_cases

HOW = "see tests/browser/conftest.py for what to install"


@pytest.fixture(scope="session")
def browser() -> Iterator:
    api = pytest.importorskip("playwright.sync_api", reason=f"needs playwright of PyPI: {HOW}")
    program = find_chromium()
    if not program:
        pytest.skip(find_missing_browser())
    with api.sync_playwright() as playwright:
        # Chromium's sandbox does not run as root, as in a container
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=program, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def report_file(tmp_path_factory) -> Path:
    """Write a report with every part that one can have, with hostile texts and footnotes."""
    from dlperf_slurm.reports.formats import Report
    from dlperf_slurm.reports.formats.html import make_page

    cases = make_cases()
    summary = summarize_cases(cases, title=HOSTILE, created_by=HOSTILE, command=(HOSTILE,))
    summary = dataclasses.replace(summary, tables=tuple(map(mark_ranks, summary.tables)))
    page = Report(summary, plot_cases(cases), f"title = '{HOSTILE}'\n")
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(make_page(page), encoding="utf-8")
    return path


def mark_ranks(table):
    """Add a footnote to each word in the table of ranks; return other tables unchanged."""
    if table.kind != "ranks":
        return table
    rows = ((row[0], dataclasses.replace(row[1], notes=(2,)), *row[2:]) for row in table.rows)
    return dataclasses.replace(table, rows=tuple(rows))


@pytest.fixture
def open_page(browser, report_file):
    """Return a function that opens the report; errors on the page are in its `problems`."""
    contexts = []

    def open_report(width: int = 1400, is_unfolded: bool = True, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("console", lambda message: page.problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: page.problems.append(f"error: {error}"))
        page.on("request", lambda request: page.problems.append(f"request: {request.url}"))
        page.goto(report_file.as_uri())
        if is_unfolded:
            page.locator("details").evaluate_all("all => all.forEach((d) => { d.open = true; })")
        return page

    yield open_report
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page):
    return open_page()
