import json

import pytest

from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.owned import LIST_FILE, replace_files


@pytest.fixture
def plots(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run/plots"


def write(plots, **contents):
    files = {name.replace("_", "."): content.encode() for name, content in contents.items()}
    replace_files(plots, plots.parent, files)


def list_names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != LIST_FILE)


def test_files_replace_those_of_an_earlier_call(plots):
    write(plots)
    assert not plots.exists()
    write(plots, a_svg="a", b_svg="b")
    write(plots, b_svg="new", c_svg="c")
    assert list_names(plots) == ["b.svg", "c.svg"]
    assert (plots / "b.svg").read_text() == "new"
    write(plots)
    assert list_names(plots) == []


def test_what_somebody_put_there_or_changed_stays(plots):
    write(plots, a_svg="a", b_svg="b")
    (plots / "paper.svg").write_text("mine")
    (plots / "a.svg").write_text("a, improved by hand")
    write(plots, c_svg="c")
    assert list_names(plots) == ["a.svg", "c.svg", "paper.svg"]


def test_link_in_the_place_of_a_file_is_removed_and_what_it_leads_to_stays(plots, tmp_path):
    write(plots, a_svg="a", b_svg="b")
    (tmp_path / "figure.svg").write_text("a")
    for name in ("a.svg", "b.svg"):
        (plots / name).unlink()
        (plots / name).symlink_to(tmp_path / "figure.svg")
    write(plots, b_svg="new")
    assert (tmp_path / "figure.svg").read_text() == "a"
    assert (plots / "b.svg").read_text() == "new"
    # nor is a folder emptied or filled by a link to it
    plots.rename(tmp_path / "papers")
    before = list_names(tmp_path / "papers")
    plots.symlink_to(tmp_path / "papers")
    with pytest.raises(FileProblem, match=r"plots .*link"):
        write(plots, a_svg="a")
    assert list_names(tmp_path / "papers") == before


@pytest.mark.parametrize(
    "text",
    [
        '{"../paper.svg": "DIGEST", "/etc/passwd": "", "..": 1, "": 2, "a\\u0000": 3}',
        '["../paper.svg"]',
        "nonsense",
        "[" * 100_000,
    ],
)
def test_list_that_somebody_else_wrote_removes_nothing(plots, text):
    (plots.parent / "paper.svg").write_text("mine")
    write(plots, a_svg="a")
    digest = json.loads((plots / LIST_FILE).read_text())["a.svg"]
    (plots.parent / "paper.svg").write_text("a")
    (plots / LIST_FILE).write_text(text.replace("DIGEST", digest))
    write(plots, c_svg="c")
    assert list_names(plots) == ["a.svg", "c.svg"]
    assert list_names(plots.parent) == ["paper.svg", "plots"]
