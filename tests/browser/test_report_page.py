"""The HTML report in a browser: it sorts, filters, fits, is readable, and loads nothing."""

import runpy
from pathlib import Path

import pytest
from unit.report_values import HOSTILE

ROOT = Path(__file__).resolve().parents[2]

# the first folded table: throughputs of five cases, one of which was left out
TABLE = "#table-1"
THROUGHPUT = 4
# the overview before it: two series at two topologies
OVERVIEW = "#overview-1"

# list the contrast of each text with its background, as WCAG 2.1 defines it
LIST_CONTRASTS = """
() => {
  const read = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const linear = (c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const color = read(getComputedStyle(e).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    throw new Error("nothing is behind " + element.tagName);
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(script):not(title):not(desc)")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3)
      .map((n) => n.data).join("").trim();
    if (!text || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const color = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(read(color)), light(behind(element))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text]);
  }
  return found;
}
"""


def read_column(page, column: int) -> list[str]:
    """Return the figures of a column in the visible rows, from the top."""
    rows = page.locator(f"{TABLE} tbody tr:visible")
    return [
        rows.nth(i).locator("th, td").nth(column).get_attribute("data-value")
        for i in range(rows.count())
    ]


def click_heading(page, column: int):
    heading = page.locator(f"{TABLE} thead th").nth(column)
    heading.get_by_role("button").click()
    return heading


def test_page_says_nothing_on_the_console_and_asks_for_nothing(page, report_file):
    click_heading(page, THROUGHPUT)
    page.get_by_label("Filter rows").fill("jax")
    # images are data URLs
    asked = [text for text in page.problems if not text.startswith("request: data:")]
    assert asked == [f"request: {report_file.as_uri()}"]


def test_hostile_texts_stay_texts_and_no_script_but_the_pages_runs(page):
    assert page.locator("h1").text_content() == page.title() == HOSTILE
    assert page.evaluate("typeof window.pwned") == "undefined"
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("typeof window.pwned") == "undefined"
    assert any("Content Security Policy" in text for text in page.problems)


def test_heading_sorts_by_figures_and_then_the_other_way_round(page):
    before = read_column(page, THROUGHPUT)
    click_heading(page, 0)
    heading = click_heading(page, THROUGHPUT)
    ascending = read_column(page, THROUGHPUT)
    assert heading.get_attribute("aria-sort") == "ascending"
    click_heading(page, THROUGHPUT)
    descending = read_column(page, THROUGHPUT)
    assert heading.get_attribute("aria-sort") == "descending"
    # no other column is marked as sorted
    assert page.locator(f"{TABLE} th[aria-sort]").count() == 1
    # a case without a figure is last in both directions
    figures = sorted((value for value in before if value), key=float)
    assert ascending == [*figures, ""]
    assert descending == [*figures[::-1], ""]
    assert before not in (ascending, descending)


def test_keyboard_alone_skips_to_the_tables_and_sorts(page):
    page.keyboard.press("Tab")
    box = page.locator(".skip").bounding_box()
    assert page.evaluate("document.activeElement.className") == "skip"
    assert min(box["x"], box["y"]) >= 0
    page.locator(f"{TABLE} .scroll").first.focus()
    # the headings of the table
    for _ in range(1 + THROUGHPUT):
        page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.closest('th').cellIndex")
    page.keyboard.press("Enter")
    heading = page.locator(f"{TABLE} thead th").nth(THROUGHPUT)
    assert focused == THROUGHPUT
    assert heading.get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize(
    ("text", "rows", "rows_of_overview"),
    [
        ("JAX 1n2g", 1, 1),
        ("batch size 8", 5, 2),
        ("batch size 16", 0, 0),
        # the middle of a word
        ("orch", 0, 0),
    ],
)
def test_filter_hides_rows_and_counts_the_rest(page, text, rows, rows_of_overview):
    box = page.get_by_label("Filter rows")
    shown = page.locator(f"{TABLE} tbody tr:visible")
    box.fill(text)
    assert shown.count() == rows
    assert page.locator(f"{OVERVIEW} tbody tr:visible").count() == rows_of_overview
    assert page.get_by_role("status").text_content() == f"{rows_of_overview} of 2 rows"
    if text == "JAX 1n2g":
        assert shown.first.text_content().split()[:4] == ["jax", "fp32", "8", "1n2g"]
    box.fill("")
    assert shown.count() == 5


def test_filter_hides_series_and_folded_tables_without_a_row(page):
    series = page.locator(f"{OVERVIEW} .series:visible")
    folds = page.locator("details.sortable:visible")
    everything = (series.count(), folds.count())
    page.get_by_label("Filter rows").fill("pytorch")
    # of three charts
    assert (everything[0], series.count()) == (6, 3)
    page.get_by_label("Filter rows").fill("caffe")
    assert (series.count(), folds.count()) == (0, 0)
    page.get_by_label("Filter rows").fill("")
    assert (series.count(), folds.count()) == everything


def test_series_are_switched_off_and_on(page):
    shown = page.locator(f"{OVERVIEW} .series:visible")
    key = page.locator(f"{OVERVIEW} button.switch").get_by_text("jax")
    button = page.get_by_role("button", name="jax", exact=True)
    key.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert {s.get_attribute("data-label") for s in shown.all()} == {"1"}
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert {s.get_attribute("data-label") for s in shown.all()} == {"0", "1"}
    # the figures stay
    assert page.locator(f"{OVERVIEW} tbody tr:visible").count() == 2


def test_point_says_its_value_when_it_is_pointed_at(page):
    point = page.locator(f"{OVERVIEW} .series [data-tip]").first
    tip = page.locator("#tip")
    assert not tip.is_visible()
    point.hover()
    assert tip.text_content() == point.get_attribute("data-tip")
    assert tip.text_content().startswith("jax, fp32, 8 at 1n1g: 77.")
    box = tip.bounding_box()
    assert box["y"] + box["height"] < point.evaluate("e => e.getBoundingClientRect().top")
    page.mouse.move(0, 0)
    assert not tip.is_visible()


def test_row_that_is_pointed_at_dims_the_other_series(page):
    page.locator(f"{OVERVIEW} tbody tr").first.hover()
    dimmed = page.locator(f"{OVERVIEW} .series.dim").all()
    assert {series.get_attribute("data-label") for series in dimmed} == {"1"}


def test_details_are_folded_at_first_and_a_link_into_them_unfolds(open_page):
    page = open_page(is_unfolded=False)
    assert not page.locator(f"{TABLE} table").is_visible()
    page.evaluate("location.hash = 'table-1-caption'")
    page.locator(f"{TABLE} table").wait_for(state="visible")


def test_command_is_copied_by_a_button(page):
    button = page.get_by_role("button", name="Copy")
    button.click()
    page.get_by_role("button", name="Copied").wait_for()
    command = page.locator(".command code").text_content()
    assert page.evaluate("getSelection().toString()").strip() == command.strip()


def test_digits_of_a_column_stand_below_each_other(page):
    edges = page.locator(f"{TABLE} tbody td.figure[data-value]").evaluate_all(
        """cells => cells.filter((c) => c.dataset.value !== "").map((cell) => {
          const text = [...cell.childNodes].find((n) => n.nodeType === 3);
          const range = document.createRange();
          const [whole] = text.data.split(/[. ]/);
          range.setStart(text, 0);
          range.setEnd(text, whole.length);
          return [cell.cellIndex, Math.round(range.getBoundingClientRect().right)];
        })"""
    )
    assert len(edges) > 10
    assert len({tuple(edge) for edge in edges}) == len({column for column, _ in edges})


def test_page_begins_with_what_came_out(page):
    findings = page.locator(".findings li")
    assert findings.first.text_content().startswith("ResNet-50 ")
    assert page.locator(".findings .doubt").count() > 0
    assert findings.last.bounding_box()["y"] < 900


def test_marks_of_footnotes_stay_in_their_cells(page):
    beyond = page.locator("td.figure .marks").evaluate_all(
        """all => all.map((marks) => marks.getBoundingClientRect().right
          - marks.closest('td').getBoundingClientRect().right)"""
    )
    assert max(beyond) <= 0


def test_number_of_a_footnote_is_no_part_of_the_text(page):
    box = page.get_by_label("Filter rows")
    shown = page.locator(".sortable tbody tr:visible")
    assert page.locator("td[data-text='1 on node1'] sup").first.text_content() == "2"
    box.fill("on node1")
    assert shown.count() > 0
    # with the number of the footnote
    box.fill("on node12")
    assert shown.count() == 0
    # nor is it in the sort key
    keys = page.evaluate("() => [...document.querySelectorAll('td[data-text]')].map(keyOf)")
    assert "1 on node1" in keys


def test_page_without_scripts_has_plain_tables(open_page):
    page = open_page(java_script_enabled=False)
    assert page.locator(f"{TABLE} tbody tr:visible").count() == 5
    assert page.locator("th button").count() == 0
    assert not page.locator(".filter").is_visible()
    assert page.locator("button").count() == 0


@pytest.mark.parametrize(
    ("scheme", "color"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 27)")]
)
def test_every_text_stands_out(open_page, scheme, color):
    page = open_page(color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == color
    contrasts = page.evaluate(LIST_CONTRASTS)
    assert len(contrasts) > 200
    assert [text for contrast, text in contrasts if contrast < 4.5] == []


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_page_fits_its_width_and_its_figures_can_be_read(open_page, width):
    page = open_page(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # a wide table scrolls in its own region
    region = page.locator(f"{TABLE} .scroll").first
    region.evaluate("e => { e.scrollLeft = 100; }")
    assert (region.evaluate("e => e.scrollLeft") > 0) == (width < 1400)
    page.locator(f"{OVERVIEW} .series [data-tip]").nth(1).hover()
    box = page.locator("#tip").bounding_box()
    assert 0 <= box["x"] <= width - box["width"]
    heights = page.evaluate(
        "() => [...document.querySelectorAll('svg text')]"
        ".map((t) => [parseFloat(getComputedStyle(t).fontSize), t.getScreenCTM()])"
        # units of an SVG are scaled with it, and some of its texts are rotated
        ".map(([size, matrix]) => size * Math.hypot(matrix.a, matrix.b))"
    )
    # pixels of the screen
    assert min(heights) >= 9


def test_paper_has_all_rows_and_parts_and_no_controls(open_page):
    page = open_page(color_scheme="dark", is_unfolded=False)
    page.get_by_label("Filter rows").fill("jax 1n2g")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert not page.locator(".filter").is_visible()
    assert not page.locator("nav").is_visible()
    assert page.locator(f"{TABLE} tbody tr:visible").count() == 5
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)"


def test_figures_have_names_for_screen_readers(page):
    assert page.get_by_role("img", name="Distribution of step times").count() == 1
    assert page.get_by_role("group", name="Throughput, images/s, over topology").count() == 1
    named = page.locator("svg[aria-label], svg[aria-labelledby], svg[aria-hidden]")
    assert named.count() == page.locator("svg").count() > 0


def test_picture_of_the_readme_is_made(browser):
    made = runpy.run_path(str(ROOT / "docs" / "make_picture.py"))["make_picture"](browser)
    kept = (ROOT / "docs" / "report.png").read_bytes()
    # of the same width: the height depends on the fonts of the system
    assert made[:20] == kept[:20]
