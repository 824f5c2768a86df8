"""What is released: archives of the same bytes each time, installed by the words of the README.

`make test-release` runs these; they take packages from an index, and two minutes.
"""

import json
import os
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from run_on_pythons import LOGIN_OLDEST, find_python
from support.releases import (
    CHECKOUT,
    ENVIRONMENTS,
    copy_checkout,
    make_environment,
    run,
    run_quickstart,
)

# the package's files and their hashes, as pip wrote them down
LIST_INSTALLED = """\
import json
from importlib.metadata import files

ours = [file for file in files("dlperf-slurm") if file.parts[0] == "dlperf_slurm" and file.hash]
print(json.dumps({str(file): file.hash.value for file in ours}))
"""


def build(folder, umask):
    """Both archives of a copy of the checkout, as somebody with this umask would make them."""
    copy = folder / "checkout"
    copy_checkout(copy)
    for path in copy.rglob("*"):
        path.chmod(0o777 & ~umask if path.is_dir() else path.stat().st_mode & ~umask)
    run(
        [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(copy)],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        umask=umask,
    )
    return sorted((folder / "dist").iterdir())


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    return build(tmp_path_factory.mktemp("first"), 0o022)


def test_archives_have_the_same_bytes_each_time(archives, tmp_path):
    again = build(tmp_path, 0o077)
    assert [path.name for path in again] == [path.name for path in archives]
    assert len(archives) == 2
    for first, second in zip(archives, again):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_wheel_says_what_it_is_and_has_the_manual_page(archives):
    (wheel,) = (path for path in archives if path.suffix == ".whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        fields = message_from_string(opened.read(metadata).decode())
        (page,) = (name for name in names if name.endswith("/share/man/man1/dlperf-slurm.1"))
        assert opened.read(page).startswith(b".TH DLPERF")
        pages = {Path(name).name for name in names if "/share/doc/dlperf-slurm/" in name}
        assert pages == {path.name for path in (CHECKOUT / "docs").glob("*.md")}
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Author"]
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_source_archive_has_no_owner_and_one_time(archives):
    (source,) = (path for path in archives if path.name.endswith(".tar.gz"))
    with tarfile.open(source) as opened:
        members = opened.getmembers()
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {
        (0, 0, "", 1700000000)
    }


def list_install_commands():
    """Return the commands of the README, each a line of bash without its comment."""
    lines = (CHECKOUT / "README.md").read_text(encoding="utf-8").splitlines()
    return [line.partition(" #")[0].strip() for line in lines if "-m pip install" in line]


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return the Python of a new environment of the oldest Python here, else of this one."""
    venv = tmp_path_factory.mktemp("oldest") / "venv"
    run([find_python(LOGIN_OLDEST) or sys.executable, "-m", "venv", str(venv)])
    return venv / "bin" / "python"


def test_readme_has_three_ways_to_install():
    assert list_install_commands() == [
        "python3 -m pip install .",
        'python3 -m pip install "git+file://$PWD"',
        "python3 -m pip wheel --no-deps -w dist . && python3 -m pip install dist/*.whl",
    ]


def clone(folder):
    """Make a checkout as users have it: what is committed, and nothing else."""
    checkout = folder / "checkout"
    run(["git", "clone", "--quiet", str(CHECKOUT), str(checkout)])
    return checkout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Return the hash of each of the package's files in a wheel of what is committed."""
    folder = tmp_path_factory.mktemp("built")
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(clone(folder))])
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        (record,) = (name for name in opened.namelist() if name.endswith(".dist-info/RECORD"))
        lines = opened.read(record).decode().splitlines()
    return dict(line.split(",")[:2] for line in lines if line.startswith("dlperf_slurm/"))


@pytest.mark.parametrize("command", list_install_commands())
def test_words_of_the_readme_install_what_is_in_the_wheel(command, built, python, tmp_path):
    run([python, "-m", "pip", "uninstall", "--yes", "dlperf-slurm"])
    # what pip makes in the checkout does no harm
    run(["bash", "-ec", command], cwd=clone(tmp_path), env=make_environment(python))
    installed = json.loads(run([python, "-c", LIST_INSTALLED], cwd=tmp_path))
    assert len(built) > 300
    assert {name: f"sha256={value}" for name, value in installed.items()} == built


def test_installed_wheel_runs_the_quickstart(archives, python, tmp_path):
    if not (ENVIRONMENTS / "pytorch" / "bin" / "python").exists():
        pytest.skip("no environment of PyTorch: dlperf-slurm env create pytorch")
    (wheel,) = (path for path in archives if path.suffix == ".whl")
    run([python, "-m", "pip", "install", "--force-reinstall", "--no-deps", str(wheel)])
    run([python, "-m", "pip", "install", str(wheel)])
    run_quickstart(python, tmp_path)
