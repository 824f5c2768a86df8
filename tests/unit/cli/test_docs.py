"""The pages of documentation as an installed user reads them."""

import pytest
from support.problems import assert_problem

from dlperf_slurm.cli import docs, main


def read(capsys, *words):
    assert main(["docs", *words]) == 0
    return capsys.readouterr().out


def test_pages_are_listed_with_their_titles(capsys):
    lines = read(capsys).splitlines()
    assert ["statistics", "Statistics"] in [line.split(maxsplit=1) for line in lines]
    assert "PAGE" in lines[-1]


@pytest.mark.parametrize("name", ["commands", "commands.md", "docs/commands.md"])
def test_page_is_printed_as_markdown(capsys, name):
    assert read(capsys, name).startswith("# Commands\n")


def test_section_ends_before_the_next_of_its_level(capsys):
    text = read(capsys, "commands#exit-codes")
    assert text.startswith("## Exit codes\n")
    assert "import-logs LOGS" not in text


@pytest.mark.parametrize(
    ("page", "says"), [("statistic", "statistics"), ("commands#exit", "exit-codes")]
)
def test_unknown_page_or_section_names_those_there_are(capsys, page, says):
    assert main(["docs", page]) == 2
    assert_problem(capsys.readouterr().err, says=(says,))


def test_installed_pages_are_found_beside_the_package(capsys, tmp_path, monkeypatch):
    package = tmp_path / "lib/python3.9/site-packages/dlperf_slurm"
    monkeypatch.setattr(docs, "__file__", str(package / "cli/docs.py"))
    assert main(["docs"]) == 2
    pages = tmp_path / "share/doc/dlperf-slurm"
    pages.mkdir(parents=True)
    (pages / "index.md").write_text("# Here\n\n```\n# no heading\n```\n## There\nx\n")
    assert read(capsys, "index#there") == "## There\nx\n"
