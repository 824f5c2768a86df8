"""The site of docs/, opened from a folder without a server: search, width, leftover markup."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if importlib.util.find_spec("material") is None:
        pytest.skip("needs mkdocs-material: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=True)
    return folder


@pytest.fixture
def phone(browser):
    context = browser.new_context(viewport={"width": 390, "height": 900})
    yield context.new_page()
    context.close()


def test_search_finds_pages_without_a_server(site, phone):
    asked = []
    phone.on("request", lambda request: asked.append(request.url))
    phone.goto((site / "index.html").as_uri())
    phone.locator("label[for=__search]").first.click()
    phone.keyboard.type("Parquet")
    first = phone.locator(".md-search-result__link").first
    first.click()
    assert phone.url.startswith((site / "python.html").as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_no_page_is_wider_than_a_phone_or_shows_its_marks(site, phone):
    pages = sorted({*site.glob("*.html"), *site.glob("notebooks/*.html")} - {site / "404.html"})
    assert len(pages) > 20
    for path in pages:
        phone.goto(path.as_uri())
        assert phone.evaluate("document.documentElement.scrollWidth") == 390, path.name
        text = "\n".join(phone.locator("article :is(p, li, td, th, h1, h2)").all_inner_texts())
        found = [mark for mark in ("```", "\\|", "](") if mark in text]
        assert found == [], path.name
        options = phone.locator("article .option")
        broken = "all => all.filter((e) => e.getClientRects().length > 1).map((e) => e.textContent)"
        assert options.evaluate_all(broken) == [], path.name


def test_no_table_is_cut_in_a_window(site, browser):
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    cut = """() => [...document.querySelectorAll('.md-typeset__scrollwrap')]
        .filter((e) => e.scrollWidth > e.clientWidth + 1).length"""
    for path in sorted(site.glob("*.html")):
        page.goto(path.as_uri())
        assert page.evaluate(cut) == 0, path.name
    context.close()


def test_notebook_is_a_page_with_its_outputs(site):
    text = (site / "notebooks/two_runs.html").read_text(encoding="utf-8")
    assert 'src="data:image/png;base64,' in text
    assert "<table" in text
