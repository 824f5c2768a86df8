"""The commands and files of the README and the tutorial work as written.

Ranks are fakes, and the user's own settings select the local scheduler.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support import fake_environment

from dlperf_slurm.provision.environments.create import STAMP_FILE
from dlperf_slurm.provision.environments.pins import read_pins

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = ("README.md", "docs/tutorial.md")

RELEASE = "tests/release/test_release.py"
# command that is not run here -> the file that runs it
RUN_ELSEWHERE = {
    "make demo": "Makefile",
    "make test": ".ci/run",
    "python3 -m pip install .": RELEASE,
    'python3 -m pip install "git+file://$PWD"': RELEASE,
    "python3 -m pip wheel --no-deps -w dist . && python3 -m pip install dist/*.whl": RELEASE,
}

# these settings override every site file
USER_SETTINGS = """\
scheduler = "local"
device = "cpu"
max_nodes = {nodes}
max_devices_per_node = {devices}
# real trainings of these sizes would take hours on this machine
time_limit_minutes = {{ default = 900, "2n8g" = 900 }}
[tracking]
poll_seconds = 1
[launcher]
name = "mpirun"
"""


def read_document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def list_commands(name: str) -> list[str]:
    """List the lines of the bash blocks, without comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```", read_document(name), re.M | re.S)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def prepared(home):
    """Prepare a folder with the tool on PATH, and a fake environment that seems to be created."""
    venv = fake_environment.make_venv(home / ".environments" / "pytorch")
    pins = read_pins("pytorch")
    stamp = f'{{"pins": "{pins.stamp}", "python": "{pins.pythons[0]}", "seconds": 1, "mib": 1}}'
    (venv / STAMP_FILE).write_text(stamp, encoding="utf-8")
    programs = home / ".bin"
    programs.mkdir()
    program = programs / "dlperf-slurm"
    tool = shlex.join([sys.executable, "-m", "dlperf_slurm"])
    program.write_text(f'#!/bin/bash\nexec {tool} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return home


def write_user_settings(home: Path, nodes: int, devices: int) -> None:
    """Make everything run on this machine, as if it had this many nodes and devices."""
    settings = home / ".config" / "dlperf-slurm" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(USER_SETTINGS.format(nodes=nodes, devices=devices), encoding="utf-8")


def run_command(command: str, home: Path) -> str:
    env = {**os.environ, "PATH": f"{home / '.bin'}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", command], cwd=home, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_all(name: str, home: Path) -> dict[str, str]:
    """Return the output of each command of a document, in order."""
    commands = [command for command in list_commands(name) if command not in RUN_ELSEWHERE]
    return {command: run_command(command, home) for command in commands}


@pytest.mark.slow
def test_commands_of_the_readme_run(prepared):
    matrix, site = (
        re.search(
            rf"^Say .*?`{file}`.*?^```toml\n(.*?)^```", read_document("README.md"), re.M | re.S
        )
        for file in ("matrices/scaling.toml", "site_configs/mycluster.toml")
    )
    for folder, name, block in (
        ("matrices", "scaling", matrix),
        ("site_configs", "mycluster", site),
    ):
        (prepared / folder).mkdir()
        (prepared / folder / f"{name}.toml").write_text(block.group(1), encoding="utf-8")
    write_user_settings(prepared, nodes=2, devices=8)
    printed = run_all("README.md", prepared)
    assert "left out" not in printed["dlperf-slurm plan matrices/scaling.toml --site mycluster"]
    assert ": 42 COMPLETED" in printed["dlperf-slurm status"]


@pytest.mark.slow
def test_commands_of_the_tutorial_run(prepared):
    # one case is enough to compare
    write_user_settings(prepared, nodes=1, devices=1)
    printed = run_all("docs/tutorial.md", prepared)
    assert "equivalent" in next(text for command, text in printed.items() if " compare " in command)
    assert len(list((prepared / "results").glob("*/report/report.html"))) == 2


def test_what_is_not_run_here_stands_in_the_file_that_runs_it():
    text = "\n".join(read_document(name) for name in DOCUMENTS)
    for command, file in RUN_ELSEWHERE.items():
        assert command in text
        assert {"make demo": "\ndemo:"}.get(command, command) in read_document(file)
