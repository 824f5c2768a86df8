"""The site of docs/, opened from a folder without a server: search, width, leftover markup."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("needs mkdocs: make docs installs it")
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    return folder


@pytest.fixture
def phone(browser):
    context = browser.new_context(viewport={"width": 390, "height": 900})
    yield context.new_page()
    context.close()


def test_search_finds_pages_without_a_server(site, phone):
    phone.goto(f"{(site / 'search.html').as_uri()}?q=Parquet")
    first = phone.locator("#mkdocs-search-results a").first
    first.wait_for()
    assert first.get_attribute("href").endswith("python.html#the-same-from-parquet")
    first.click()
    assert phone.url.startswith((site / "python.html").as_uri())


def test_no_page_is_wider_than_a_phone_or_shows_its_marks(site, phone):
    pages = sorted(set(site.glob("*.html")) - {site / "404.html"})
    assert len(pages) > 20
    for path in pages:
        phone.goto(path.as_uri())
        assert phone.evaluate("document.documentElement.scrollWidth") == 390, path.name
        text = phone.inner_text("[role=main]")
        found = [mark for mark in ("```", "\\|", "](") if mark in text]
        assert found == [], path.name
