"""The architecture: one direction of imports, and a start-up that loads no heavy library."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import IMPORT_DIR

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def help_imports() -> set[str]:
    """Top-level names of all modules that `--help` imports."""
    command = [sys.executable, "-X", "importtime", "-m", "dlperf_slurm", "--help"]
    done = subprocess.run(command, cwd=IMPORT_DIR, capture_output=True, text=True, check=True)
    modules = re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.M)
    return {module.partition(".")[0] for module in modules}


def test_imports_go_in_one_direction():
    config = str(ROOT / "setup.cfg")
    code = (
        "from importlinter.cli import lint_imports\n"
        f"raise SystemExit(lint_imports(config_filename={config!r}, no_cache=True))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=IMPORT_DIR, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "library",
    [
        *("pandas", "numpy", "duckdb", "matplotlib", "jinja2", "submitit", "pydantic", "rich"),
        *("tomli_w", "PIL", "sklearn", "torch", "mpi4py"),
    ],
)
def test_help_does_not_import(library, help_imports):
    assert library not in help_imports


def test_help_imports_are_seen_at_all(help_imports):
    assert {"dlperf_slurm", "argparse"} <= help_imports
