"""The site of a results folder: which files it has, which are written again, what it leaves out."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pytest
from builders import run_main
from history_runs import CASE_2, RESULTS, add_run, fail_case, set_manifest
from support.problems import assert_problem

from dlperf_slurm.reports.publish import STATE_FILE

pytestmark = pytest.mark.integration

SITE = Path("site")
DAY_1, DAY_2 = (f"202405{day:02}-120000-seven-tiny-abcd" for day in (1, 2))


def publish(capsys, *options, code=0):
    found, out, err = run_main(["publish", str(SITE), *options], capsys)
    assert found == code, err
    return out, err


def list_files():
    return {
        str(path.relative_to(SITE)): path.stat().st_mtime_ns
        for path in SITE.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def two_runs(staged, home):
    runs = [add_run(staged, 1), add_run(staged, 2, 0.9)]
    fail_case(runs[1], CASE_2, reason="rank 1 on gpu07.cluster.example: ValueError: x")
    for path in runs:
        set_manifest(path, title="Seven by _grace_", created_on="gpu07", created_by="_grace_")
    return runs


def test_site_has_pages_that_lead_to_each_other_and_nowhere_else(two_runs, capsys):
    odd = "a 1.5 index"
    set_manifest(two_runs[1], run_id=odd)
    publish(capsys)
    pages = {path: path.read_text(encoding="utf-8") for path in SITE.rglob("*.[hm]*")}
    names = [*(f"runs/{name}" for name in (DAY_1, odd)), "history", f"compare/{odd}"]
    assert {str(path.relative_to(SITE)) for path in pages} == {
        *("index.html", "README.md"),
        *(f"{name}.{suffix}" for name in names for suffix in ("html", "md")),
    }
    for path, text in pages.items():
        links = re.findall(r'(?:href|src)="([^"#]+)|\]\(([^)]+)\)', text)
        for link in map("".join, links):
            assert (path.parent / unquote(link)).is_file(), (path, link)
            assert not (path.suffix == ".md" and link.endswith(".html"))
        assert links or path.parent.name == "runs"
    readme = unquote(pages[SITE / "README.md"])
    assert all(f"]({name})" in readme for name in (f"runs/{odd}.csv", f"compare/{odd}.md"))
    index = pages[SITE / "index.html"]
    assert "fp32" in index
    assert "1 slower" in index
    assert '<svg class="plot' not in index
    assert "not shown" not in pages[SITE / "history.html"]


@pytest.mark.parametrize("name", ["0-copy", "a\nFORGED", "0\x1b[2J", "0\u202e"])
def test_copy_of_a_run_does_not_take_its_place(two_runs, capsys, name):
    """Whoever may write into the results folder can add another directory with the same id."""
    shutil.copytree(two_runs[0], RESULTS / name)
    for command in (["publish", str(SITE)], ["history"], ["list"]):
        _, out, err = run_main(command, capsys)
        assert not re.search(r"^FORGED|[\x1b\u202e]", out + err, re.M)
    assert err.count("left out") == (0 if name == "0-copy" else 1)
    assert {path.stem for path in (SITE / "runs").iterdir()} == {DAY_1, DAY_2}
    code, out, _ = run_main(["history", "--json"], capsys)
    assert code == 0
    points = [point for timeline in json.loads(out)["timelines"] for point in timeline["points"]]
    assert {Path(point["entry"]["run_dir"]).name for point in points} == {DAY_1, DAY_2}


def test_readme_of_the_user_is_not_replaced(two_runs, capsys):
    publish(capsys)
    (SITE / "README.md").write_text("mine", encoding="utf-8")
    _, err = publish(capsys, code=2)
    assert_problem(err, file=SITE / "README.md", says=("move it",))
    assert (SITE / "README.md").read_text(encoding="utf-8") == "mine"


def test_only_what_changed_is_written_again(two_runs, staged, capsys):
    publish(capsys)
    first = list_files()
    assert publish(capsys)[0].startswith("0 files written")
    state = first.pop(STATE_FILE)
    assert {name: time for name, time in list_files().items() if name != STATE_FILE} == first
    assert state
    add_run(staged, 3, 0.95)
    publish(capsys)
    second = list_files()
    changed = {name for name in first if second[name] != first[name]}
    assert changed == {"index.html", "history.html", "README.md", "history.md"}
    (SITE / f"runs/{DAY_1}.html").write_text("damaged", encoding="utf-8")
    (SITE / "mine.txt").write_text("mine", encoding="utf-8")
    for path in two_runs[1].rglob("*"):
        if path.name == "manifest.json":
            path.unlink()
    publish(capsys)
    assert "damaged" not in (SITE / f"runs/{DAY_1}.html").read_text(encoding="utf-8")
    assert f"runs/{DAY_2}.html" not in list_files()
    assert "mine.txt" in list_files()


def test_run_that_cannot_be_read_is_named_and_not_fatal(two_runs, capsys):
    (two_runs[1] / "manifest.json").write_text("{", encoding="utf-8")
    _, err = publish(capsys)
    assert DAY_2 in err
    index = (SITE / "index.html").read_text(encoding="utf-8")
    assert DAY_2 in index
    assert not (SITE / f"runs/{DAY_2}.html").exists()
    assert (SITE / f"runs/{DAY_1}.html").is_file()


@pytest.mark.parametrize("options", [[], ["--names"]])
def test_names_of_hosts_and_users_stay_out_unless_asked(two_runs, capsys, options):
    publish(capsys, *options)
    texts = "".join(path.read_text(encoding="utf-8") for path in SITE.rglob("*.*"))
    for name in ("gpu07", "grace", "node1"):
        assert (name in texts) == bool(options), name
    assert "cluster.example" not in texts or options


def test_folder_of_other_files_is_refused_and_unchanged(two_runs, capsys):
    SITE.mkdir()
    (SITE / "index.html").write_text("mine", encoding="utf-8")
    _, err = publish(capsys, code=2)
    assert_problem(err, file=str(SITE))
    assert [path.name for path in SITE.iterdir()] == ["index.html"]


def test_folder_without_runs_is_an_error(home, capsys):
    RESULTS.mkdir()
    assert_problem(publish(capsys, code=2)[1], file=str(RESULTS))
    assert not SITE.exists()
