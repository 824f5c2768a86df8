"""How far pip is, by what it has printed."""

import re

import pytest

from dlperf_slurm.provision.environments import installation
from dlperf_slurm.provision.environments.pip_progress import describe_pip

# of pip 24, with --progress-bar off
LINES = """\
Collecting numpy==2.2.6 (from -r /e/requirements.txt (line 3))
  Downloading numpy-2.2.6-cp311-cp311-manylinux_2_17_x86_64.whl.metadata (62 kB)
Collecting torch==2.13.0 (from -r /e/requirements.txt (line 1))
  Using cached torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (1.1 GB)
Downloading numpy-2.2.6-cp311-cp311-manylinux_2_17_x86_64.whl (16.8 MB)
Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)
""".splitlines()


def test_packages_and_bytes_are_counted_apart_from_those_of_the_cache():
    text = "2 of 31 packages, 1117 MB, 1100 MB of them from pip's cache"
    assert describe_pip(LINES, 31) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "1 of 31 packages, 0 MB"), (2, "1 of 31 packages, 0 MB")]
)
def test_first_lines_have_no_bytes_yet(count, text):
    assert describe_pip(["Looking in indexes: https://a.example", *LINES[:count]], 31) == text


def test_what_packages_need_besides_is_never_more_than_all():
    assert describe_pip(LINES, 1).startswith("2 of 2 packages")


def test_last_part_is_named():
    lines = [*LINES, "Installing collected packages: six, numpy, torch"]
    assert describe_pip(lines, 31) == "writing 3 packages"


@pytest.mark.parametrize(
    ("command", "news"),
    [(["sleep", "0.5"], ""), (["sh", "-c", "echo so far; sleep 0.5"], ": so far")],
)
def test_news_are_of_what_a_program_printed_and_not_of_its_command(
    command, news, home, monkeypatch
):
    monkeypatch.setattr(installation, "NEWS_SECONDS", 0.1)
    heard = []
    made = installation.Installation("tiny", home / "environments" / "tiny", heard.append)
    made.run_step("working", command)
    assert heard[0] == "tiny: working"
    assert re.fullmatch(f"tiny: working, [0-9]+ s{news}", heard[-1])
