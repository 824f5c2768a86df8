"""The files at the top of the project, and the names of test files, agree with the package."""

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dlperf_slurm

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dlperf_slurm"


def test_the_citation_and_the_changelog_are_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.M) == [dlperf_slurm.__version__]
    assert re.findall(r"^## (\d\S*)", changelog, re.M)[0] == dlperf_slurm.__version__


def test_the_license_is_the_one_that_the_metadata_and_the_citation_name():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    for name in ("setup.cfg", "CITATION.cff"):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if re.match(r"license(_expression)?[ :=]", line)] in (
            ["license_expression = Apache-2.0"],
            ["license: Apache-2.0"],
        )


def test_the_wheel_has_every_folder_of_the_package():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    folders = {path.parent.relative_to(ROOT) for path in PACKAGE.rglob("__init__.py")}
    found = {".".join(folder.parts) for folder in folders}
    # other packages are in folders beside the package
    beside = dict(line.split(" = ") for line in setup["options"]["package_dir"].split("\n") if line)
    inside = {
        f"{name}.{folder.name}"
        for name, place in beside.items()
        for folder in (ROOT / place).iterdir()
        if folder.is_dir()
    }
    assert set(setup["options"]["packages"].split()) == found | {*beside} | inside
    # and says that it is typed
    assert (PACKAGE / "py.typed").is_file()


def test_each_file_of_unit_tests_is_named_after_what_it_tests():
    """Look for `jobs/test_plan.py` at `jobs/plan.*` in the package, the checkout or tests/."""
    unit = ROOT / "tests" / "unit"
    strays = []
    for path in unit.rglob("test_*.py"):
        folders = [top / path.parent.relative_to(unit) for top in (PACKAGE, ROOT, unit.parent)]
        entries = {entry for folder in folders if folder.is_dir() for entry in folder.iterdir()}
        if path.stem[5:] not in {entry.name.split(".")[0].strip("_") for entry in entries}:
            strays.append(path.relative_to(unit).as_posix())
    # which calls all commands
    assert strays == ["test_fuzz.py"]


def test_subjects_of_commits_that_are_not_pushed_have_the_form_of_contributing():
    """Check the last commit where there is no branch to compare with, as in a shallow clone."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs git and a clone: the subjects of commits are checked")
    for commits in (["@{upstream}..HEAD"], ["-1"]):
        git = ["git", "-C", str(ROOT), "log", "--no-merges", "--format=%s", *commits]
        done = subprocess.run(git, capture_output=True, text=True)
        if done.stdout:
            break
    subjects = done.stdout.splitlines()
    form = re.compile(r"[a-z][\w/., -]*: [a-z].*[^.]")
    assert [s for s in subjects if len(s) > 72 or not form.fullmatch(s)] == []
