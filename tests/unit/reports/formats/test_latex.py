"""LaTeX tables: every text is text, and every footnote stands below its table."""

import re
import subprocess

import pytest
from report_values import HOSTILE, make_cases, make_measured, rename, summarize_cases, write_report
from support.requirements import find_missing_latex

from dlperf_slurm.published.against import make_against_table
from dlperf_slurm.published.layouts import list_layouts, load_layout
from dlperf_slurm.published.layouts.parts.figures import make_run_figures
from dlperf_slurm.reports.formats.latex import MOST_LINES, escape_latex, write_tables

# commands and escapes that our tables may have; what is left must be plain
ESCAPES = re.compile(
    r"\\text(backslash|asciicircum|asciitilde|less|greater|bar|quotedbl|quotesingle|asciigrave)\{\}"
    r"|\\[{}$&#%_]|\{-\}"
)


def serialize(*cases, **changes) -> str:
    return write_report("latex", summarize_cases(cases or make_cases(), **changes))


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("50 %", r"50 \%"),
        ("a_b & c#1", r"a\_b \& c\#1"),
        ("$x^2$ ~ {y}", r"\$x\textasciicircum{}2\$ \textasciitilde{} \{y\}"),
        ("\\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("64 -> 8", r"64 {-}\textgreater{} 8"),
        ("a\nb\x00c", "a b c"),
    ],
)
def test_text_is_escaped(text, latex):
    assert escape_latex(text) == latex


@pytest.mark.parametrize("text", [HOSTILE, "".join(map(chr, range(256))), "\\" * 50])
def test_no_special_character_survives(text):
    assert not re.search(r"[\\{}$&#%_^~<>|\"'`\x00-\x1f]|--", ESCAPES.sub("", escape_latex(text)))


def test_marks_are_raised_and_their_footnotes_follow():
    text = serialize(make_measured("jax", "1n1g", [0.1, 0.1]))
    assert r"80.00{\rlap{\textsuperscript{1}}}" in text
    assert r"{\scriptsize \{80.00 to 80.00\}}" in text
    assert r"\par\textsuperscript{1} a 95 \% interval needs 6 repeats" in text


def test_table_has_only_its_own_footnotes():
    cases = [make_measured("jax", "1n1g", [0.1]), make_measured("mxnet", "1n1g", [], ["failed: x"])]
    first = serialize(*cases).split(r"\begin{table}")[1]
    assert re.findall(r"\\par\\textsuperscript\{(\d+)\}", first) == ["1", "2"]


def test_title_cannot_end_its_comment():
    text = serialize(title="a\n\\input{x}")
    assert r"\input" not in [line.strip()[:6] for line in text.splitlines()]
    assert "% a \\input{x}" in text


def test_braces_and_environments_are_balanced():
    text = re.sub(r"(?m)^%.*$", "", serialize(title=HOSTILE))
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert text.count(r"\begin{") == text.count(r"\end{")


DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{booktabs,graphicx,siunitx}
\begin{document}
\input{report}
\end{document}
"""


@pytest.fixture(scope="module")
def summary():
    """Return a report with hostile texts and with more rows than a page has, as DLPerf's runs."""
    measured = make_measured("mxnet", "1n1g", [0.1] * 7)
    many = [
        rename(measured, framework=framework, topology=f"{nodes}n8g", case_id="")
        for framework in ("mxnet", "oneflow", "paddle")
        for nodes in range(1, 10)
    ]
    return summarize_cases([*make_cases(), *many], title=HOSTILE)


@pytest.mark.integration
@pytest.mark.parametrize("layout", ["", "against", *list_layouts()])
def test_document_compiles_and_no_table_is_wider_or_longer_than_the_page(tmp_path, summary, layout):
    missing = find_missing_latex()
    if missing:
        pytest.skip(missing)
    text = write_report("latex", summary)
    if layout == "against":
        table = make_against_table("dlperf", summary.results.cases)
        text = write_tables([table], summary.footnotes, [])
    elif layout:
        document = load_layout(layout).lay_out(make_run_figures(summary.results))
        text = write_tables(document.tables, document.footnotes, document.notes)
    (tmp_path / "report.tex").write_text(text, encoding="utf-8")
    (tmp_path / "main.tex").write_text(DOCUMENT, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    log = (tmp_path / "main.log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert [line for line in log.splitlines() if "Overfull" in line or "too large" in line] == []


def test_long_table_is_continued_with_a_label_of_its_own(summary):
    parts = [
        part for part in write_report("latex", summary).split(r"\begin{table}") if "(2 of" in part
    ]
    assert r"\label{tab:dlperf-1-2}" in parts[0]
    assert all(part.count("\n") < MOST_LINES + 40 for part in parts)
