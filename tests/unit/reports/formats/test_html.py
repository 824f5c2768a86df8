"""The HTML report: no text becomes markup, every link has an end, nothing is loaded."""

import base64
import dataclasses
import hashlib
import re
import subprocess
from html.parser import HTMLParser

import numpy
import pytest
from builders import find_task, make_ranks, make_record, read_case, write_record
from markupsafe import escape
from report_values import (
    HOSTILE,
    make_cases,
    make_measured,
    plot_cases,
    rename,
    summarize_cases,
    write_rows,
)

from dlperf_slurm.cli import main
from dlperf_slurm.contract.record import STEP_SECONDS_FILE
from dlperf_slurm.files.owned import LIST_FILE
from dlperf_slurm.reports.formats import Report
from dlperf_slurm.reports.formats.html import make_page
from dlperf_slurm.reports.formats.page.figures import PAGE_COLORS, inline_svg
from dlperf_slurm.reports.formats.page.glossary import GLOSSARY, explain
from dlperf_slurm.reports.formats.page.provenance import tabulate_missing
from dlperf_slurm.reports.formats.page.reproduce import write_command
from dlperf_slurm.reports.plots import Plot, draw_for_page

pytestmark = pytest.mark.integration


class Document(HTMLParser):
    """Elements with their attributes, and all text, of which a page consists."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, {name: value or "" for name, value in attributes}))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def list_values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt" viewBox="0 0 1 1"/>'


@pytest.fixture(scope="module")
def plots():
    return plot_cases(make_cases())


@pytest.fixture(scope="module")
def html(plots) -> str:
    summary = summarize_cases(
        make_cases(), title=HOSTILE, created_by=HOSTILE, site_name=HOSTILE, command=("a b", HOSTILE)
    )
    return make_page(Report(summary, plots, f"title = '{HOSTILE}'"))


@pytest.fixture(scope="module")
def document(html) -> Document:
    return Document(html)


def make_small_page(*cases) -> str:
    return make_page(Report(summarize_cases(cases)))


def test_nothing_of_a_user_becomes_an_element(document):
    tags = [tag for tag, _ in document.elements]
    assert tags.count("script") == 1
    assert "img" not in tags
    names = {name for _, attributes in document.elements for name in attributes}
    assert [name for name in names if name.startswith("on")] == []


def test_what_users_wrote_is_shown_as_they_wrote_it(document):
    # title twice, who, site, the command, the matrix, a footnote, a problem, a reason
    assert document.text.count(HOSTILE) >= 8


def test_page_refers_to_nothing_outside(document):
    addresses = document.list_values("src") + document.list_values("href")
    addresses += document.list_values("xlink:href")
    outside = [text for text in addresses if not text.startswith(("#", "data:image/png;base64,"))]
    assert outside == []


def test_policy_forbids_everything_but_the_pages_own_script(html, document):
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(a["content"] for tag, a in document.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy


def test_every_link_and_label_has_one_end(document):
    ids = document.list_values("id")
    assert len(ids) == len(set(ids))
    ends = [text[1:] for text in document.list_values("href")]
    for name in ("aria-labelledby", "aria-describedby", "for"):
        ends += [end for text in document.list_values(name) for end in text.split()]
    assert [end for end in ends if end not in ids] == []


def test_footnote_stands_below_its_table_and_leads_back_to_its_first_mark(html):
    (section,) = re.findall(r'<section class="sortable overview".*?</section>', html, re.DOTALL)
    (mark,) = re.findall(r'<a href="#overview-1-note-1" id="(overview-1-mark-1)"', section)
    assert f'<a class="back" href="#{mark}"' in section
    assert '<li id="overview-1-note-1" value="1">' in section


def test_all_tables_of_the_other_formats_are_there_but_those_that_one_table_joins(document):
    joined = "ResNet-50: fp32, batch size 8 per device"
    for table in summarize_cases(make_cases()).tables:
        assert (table.title in document.texts) == (table.title != joined)


def test_state_counts_what_is_missing(document):
    assert "23 of 24 planned repeats were measured; 1 has no valid record." in document.text
    whole = make_small_page(make_measured("jax", "1n1g", [0.1]))
    assert "All 1 planned repeats were measured, with 1 warning." in whole


def test_repeats_that_lack_for_the_same_reason_are_one_row():
    cases = [make_measured(name, "1n1g", [], ["failed: exit 1"] * 3) for name in ("jax", "mxnet")]
    (table,) = tabulate_missing(summarize_cases(cases).results)
    names = ", ".join(case.case.case_id for case in cases)
    assert write_rows(table) == (("failed: exit 1", "1-3", names),)


def test_figures_of_tables_that_one_joins_say_what_each_is_about():
    case = make_measured("jax", "1n1g", [0.1, 0.1])
    cases = (case, rename(case, precision="amp-bf16"))
    subjects = [f"ResNet-50: {name}, batch size 8 per device" for name in ("fp32", "amp-bf16")]
    plots = [Plot(f"distribution-{s[11:15]}", s, "Steps", "", SVG) for s in subjects]
    titles = re.findall("<h4>(Steps.*)</h4>", make_page(Report(summarize_cases(cases), plots)))
    assert titles == [f"Steps: {subject}" for subject in subjects]


def test_run_of_one_topology_has_bars_in_its_table_and_no_chart():
    html = make_small_page(
        make_measured("jax", "1n1g", [0.1, 0.1]), make_measured("mxnet", "1n1g", [0.2, 0.2])
    )
    assert "<figure>" not in html
    assert re.findall(r'<path d="M0 11h([\d.]+)" stroke=', html) == ["72.0", "36.0"]


def test_word_of_a_user_is_no_markup_where_it_is_explained():
    assert explain("<b>busy</b>") == (
        f'&lt;b&gt;<abbr title="{escape(GLOSSARY["busy"])}">busy</abbr>&lt;/b&gt;'
    )


def test_page_weighs_less_than_20_kilobytes_a_case():
    rng = numpy.random.default_rng(1)
    cases = [
        make_measured(framework, topology, list(0.1 + 0.001 * rng.random(7)))
        for framework in ("jax", "pytorch")
        for topology in ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g")
    ]
    with draw_for_page():
        plots = plot_cases(cases)
    page = make_page(Report(summarize_cases(cases), plots))
    assert len(page.encode()) < 20_000 * len(cases)


def test_figure_has_the_pages_colours_and_no_style_of_its_own(plots):
    for plot in plots:
        svg = inline_svg(plot)
        assert [color for color in PAGE_COLORS if color in svg.lower()] == []
        assert "<style" not in svg
        assert f">{plot.caption}</desc>" in svg


def test_references_inside_a_figure_have_an_end(plots):
    for plot in plots:
        svg = inline_svg(plot)
        ids = set(re.findall(r'\bid="([^"]+)"', svg))
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= ids
        assert set(re.findall(r'href="#([^"]+)"', svg)) <= ids


def test_cell_with_marks_has_its_text_without_them(document):
    texts = document.list_values("data-text")
    assert {"152.6 {145.3 to 159.8} n=2 of 3", "not run"} <= set(texts)
    assert [text for text in texts if text.endswith("]")] == []


def test_versions_that_differ_are_counted():
    case = make_measured("jax", "1n1g", [0.1, 0.1, 0.1])
    for outcome, version in zip(case.outcomes, ("1.0", "2.0", "2.0")):
        outcome.record.versions["jax"] = version
    other = make_measured("jax", "1n2g", [0.1])
    other.outcomes[0].record.versions.clear()
    page = make_small_page(case, other)
    assert "2.0 (in 2 repeats); 1.0 (in 1 repeats); not reported (in 1 repeats)" in page


def measure(run) -> None:
    """Sound records and step times for all array tasks."""
    for task in run.read_all_tasks():
        case = read_case(run, task)
        path = write_record(run, task, make_record(case, 2.0, ranks=make_ranks(case, 2.0)))
        times = numpy.full((case.world_size, case.measured_steps), 2.0 / case.measured_steps)
        numpy.save(path.with_name(STEP_SECONDS_FILE), times)


def test_figures_for_papers_are_written_beside_those_of_the_page(staged_run):
    measure(staged_run)
    assert main(["report"]) == 0
    folder = staged_run.path / "report"
    before = {name: c for name, c in list_contents(folder).items() if "/" not in name}
    # the matrix as it was
    assert b"title = &#34;Small&#34;" in before["report.html"]
    plots = list_contents(folder / "plots")
    kinds = {re.split(r"-resnet-?50.*(?=\.)", name)[0] for name in plots if name != LIST_FILE}
    assert kinds == {"step-times", "ranks-pytorch"}
    assert main(["report", "--plots", "files"]) == 0
    assert list_contents(folder / "plots") == plots
    files = [path for path in (folder / "plots-files").iterdir() if path.name != LIST_FILE]
    assert {path.suffix for path in files} == {".svg", ".pdf", ".png"}
    assert len(files) == 3 * len(list((folder / "plots-files").glob("*.svg")))
    assert {path.read_bytes()[:4] for path in files if path.suffix == ".png"} == {b"\x89PNG"}
    assert any(path.name.startswith("throughput-") for path in files)
    assert {name: c for name, c in list_contents(folder).items() if "/" not in name} == before


def list_contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_variant_of_a_report_leaves_the_report_as_it_was(staged_run, capsys):
    measure(staged_run)
    folder = staged_run.path / "report"
    assert main(["report"]) == 0
    for options in (["--plots", "none"], ["--against", "dlperf"]):
        before = list_contents(folder)
        assert main(["report", *options]) == 0
        after = list_contents(folder)
        assert {name: after[name] for name in before} == before
        page = f"report{'-'.join(options)[1:]}.html"
        assert page in after.keys() - before.keys()
        assert capsys.readouterr().out.endswith(f"Report: {folder / page}\n")
    page = after["report-plots-none.html"].decode()
    assert 'class="chart"' in page
    assert 'class="plot' not in page
    (folder / "plots" / "mine.svg").write_text("<svg/>", encoding="utf-8")
    assert main(["report"]) == 0
    assert (folder / "plots" / "mine.svg").exists()


def test_command_that_reproduces_writes_the_matrix_and_submits_it(staged_run, tmp_path):
    measure(staged_run)
    name = f"{staged_run.manifest.matrix_name}.toml"
    words = ("/opt/tool/__main__.py", "plan", f"far/{name}")
    manifest = dataclasses.replace(staged_run.manifest, command=words)
    matrix = 'title = "it\'s $HOME"\nEND_OF_MATRIX\n'
    command = write_command(manifest, matrix)
    script = f'dlperf-slurm() {{ echo "$@"; }}\n{command}\n'
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"plan {name}\n"
    assert (tmp_path / name).read_text(encoding="utf-8") == matrix


def test_report_of_an_unmeasured_run_has_a_page(staged_run):
    assert main(["report"]) == 5
    page = (staged_run.path / "report/report.html").read_text("utf-8")
    assert "0 of 6 planned repeats" in page
    assert find_task(staged_run, "1n1g").case_id in page
