"""What commands load before they do anything: modules and files, which a slow disk counts."""

import json
import os
import subprocess
import sys

import pytest
from builders import IMPORT_DIR, SMALL_MATRIX, write_matrix

# what takes a tenth of a second and more each, most commands long, and has work in few commands
HEAVY = {"PIL", "duckdb", "jinja2", "matplotlib", "numpy", "pandas", "sklearn", "submitit"}

COUNT = """\
import sys
opened = []
sys.addaudithook(lambda event, details: opened.append(details) if event == "open" else None)
from dlperf_slurm.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
counted = [len(opened), sorted(sys.modules)]
import json
print(json.dumps(counted))
"""


def run_command(words):
    """Return the number of files that a command opened, and the names of its modules."""
    command = [sys.executable, "-c", COUNT, *words]
    environment = {**os.environ, "PYTHONPATH": IMPORT_DIR}
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    opened, modules = json.loads(done.stdout.splitlines()[-1])
    return opened, set(modules)


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_loads_what_prints_it_and_opens_few_files(words):
    opened, modules = run_command(words)
    ours = {name for name in modules if name.startswith("dlperf_slurm.")}
    assert ours == {
        "dlperf_slurm.cli",
        "dlperf_slurm.cli.commands",
        "dlperf_slurm.cli.streams",
        "dlperf_slurm.plain_text",
        "dlperf_slurm.program",
        "dlperf_slurm.version",
    }
    assert not modules & {*HEAVY, "dataclasses", "json.decoder", "pydantic", "rich", "shutil"}
    # 120 with those of the interpreter itself, which are opened before the count begins
    assert 5 < opened < 70


PLAN, RESULTS = "dlperf_slurm.jobs.plan", "dlperf_slurm.reports.summarize"


@pytest.mark.parametrize(
    ("words", "loaded", "others"),
    [
        (["plan", "--help"], "dlperf_slurm.cli.runs", {"dlperf_slurm.cli.history", "pydantic"}),
        (["config", "show"], "dlperf_slurm.config.site", {*HEAVY, PLAN, RESULTS}),
        (
            ["plan"],
            PLAN,
            {*HEAVY, "rich", "dlperf_slurm.results.collect", RESULTS, "dlperf_slurm.logs"},
        ),
    ],
)
def test_command_loads_what_it_needs_alone(home, staged_run, words, loaded, others):
    write_matrix(SMALL_MATRIX, home / "matrix.toml")
    arguments = [] if "--help" in words else ["matrix.toml", "--site", "local"]
    # the first time, `plan` makes a summary of the run
    run_command([*words, *arguments])
    _, modules = run_command([*words, *arguments])
    assert loaded in modules
    assert not modules & others


@pytest.mark.parametrize("command", ["status", "cancel", "log", "list"])
def test_command_on_a_run_reads_its_json_alone(staged_run, command):
    words = [command] if command == "list" else [command, str(staged_run.path)]
    if command == "list":
        # the first time, a summary of the run is made
        run_command(words)
    _, modules = run_command(words)
    assert not modules & {*HEAVY, "asyncio", "pydantic", "rich"}
    # those of the interpreter itself included
    assert 50 < len(modules) < (280 if command == "list" else 185)
    # what takes a millisecond each, and has no work here
    slow = {"hashlib", "socket", "zipfile"}
    # the last msgspec for Python 3.9 loads it
    slow |= {"subprocess"} if sys.version_info >= (3, 10) else set()
    assert command != "status" or not modules & slow
