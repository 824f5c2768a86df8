"""The architecture: core modules name no model."""

import ast
from pathlib import Path

import pytest

from dlperf_slurm.worker.models import list_models

ROOT = Path(__file__).resolve().parents[3]
# Modules that may name models: in the worker, models and adapters; on the login side, published
# tables and logs, and data sets that are made for a model.
ROOMS_OF_MODELS = (
    *("worker/models", "worker/frameworks", "worker/scripts"),
    *("logs", "published", "provision/datasets"),
)


def list_core_modules() -> list[Path]:
    package = ROOT / "dlperf_slurm"
    rooms = [package / room for room in ROOMS_OF_MODELS]
    return [path for path in package.rglob("*.py") if not {*rooms} & {*path.parents}]


@pytest.mark.integration
def test_core_asks_a_model_and_knows_no_models_name():
    names = set(list_models())
    found = []
    paths = list_core_modules()
    assert {"measure.py", "plan.py", "parity.py"} <= {path.name for path in paths}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_name = isinstance(node, ast.Constant) and node.value in names
            is_import = isinstance(node, ast.ImportFrom) and (
                (node.module or "").rpartition(".")[2] in names
                or names & {alias.name for alias in node.names}
            )
            if is_name or is_import:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
