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

CONFIG = ["config", "show", "matrix.toml", "--site", "local"]


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


def test_help_of_a_command_loads_the_file_that_declares_it_alone():
    _, modules = run_command(["plan", "--help"])
    assert "dlperf_slurm.cli.runs" in modules
    assert not modules & {"dlperf_slurm.cli.history", "dlperf_slurm.cli.setup", "pydantic"}


def test_settings_are_shown_without_what_plans_runs_and_reports(home):
    write_matrix(SMALL_MATRIX, home / "matrix.toml")
    _, modules = run_command(CONFIG)
    assert "dlperf_slurm.config.site" in modules
    assert not modules & {*HEAVY, "dlperf_slurm.jobs.plan", "dlperf_slurm.reports.summarize"}


def test_plan_reads_no_results_where_there_are_none(home):
    write_matrix(SMALL_MATRIX, home / "matrix.toml")
    _, modules = run_command(["plan", "matrix.toml", "--site", "local"])
    assert "dlperf_slurm.jobs.plan" in modules
    assert not modules & {*HEAVY, "dlperf_slurm.results.collect", "dlperf_slurm.reports.summarize"}
