"""Documents of the Python interface: their tables, their code and their notebooks."""

import re
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

import nbformat
import pytest
from builders import IMPORT_DIR
from history_runs import CASE_1, CASE_2, add_run, write_step_seconds
from nbclient import NotebookClient

from dlperf_slurm.cli import main
from dlperf_slurm.config.site import Site
from dlperf_slurm.matrix.tables import Matrix
from dlperf_slurm.reports.formats.page.glossary import GLOSSARY

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebooks" / "two_runs.ipynb"


@pytest.fixture
def two_runs(staged, home):
    for day, factor in ((1, 1.0), (2, 0.9)):
        write_step_seconds(add_run(staged, day, factor))


def list_outputs(notebook, kind):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("make_columns.py", "columns.md"),
        ("make_frameworks.py", "frameworks.md"),
        ("make_security.py", "security.md"),
        ("make_references.py", "matrix-reference.md"),
        ("make_references.py", "site-reference.md"),
    ],
)
def test_references_are_what_the_code_declares(script, name):
    make = runpy.run_path(str(ROOT / "docs" / script))["make_document"]
    made = make(name) if script == "make_references.py" else make()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == made, f"run docs/{script}"


@pytest.mark.parametrize("tables", [Matrix, Site])
def test_each_table_of_a_schema_has_a_section(tables):
    script = runpy.run_path(str(ROOT / "docs" / "make_references.py"))
    schema = tables.model_json_schema()
    assert set(script["find_headings"](schema)) == set(schema["$defs"])


def test_glossary_has_the_terms_that_the_page_explains():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text, re.M))
    assert {word: rows.get(word) for word in GLOSSARY} == GLOSSARY


@pytest.mark.parametrize("name", ["security.md", "faults.md", "site.md"])
def test_tests_that_documents_name_are_there(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", text)
    assert named
    for path, test in named:
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{test}"


def test_files_that_documents_name_are_there():
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/*.md")]
    named = {
        (document.name, path)
        for document in documents
        for path in re.findall(
            r"`((?:benchmarks|dlperf_slurm|docs|templates|tests)/[\w./-]+)",
            document.read_text("utf-8"),
        )
        # placeholders for names of new files
        if not re.search("NAME|KIND", path)
    }
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name[1]).exists()] == []


def test_the_site_of_documents_names_each_page():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = set(re.findall(r"(\S+\.md)$", navigation, re.M))
    notebooks = {f"notebooks/{path.stem}.md" for path in NOTEBOOK.parent.glob("*.ipynb")}
    assert named == {path.name for path in (ROOT / "docs").glob("*.md")} | notebooks


RECIPES = re.findall(
    r"^```toml\n(.*?)^```", (ROOT / "docs/recipes.md").read_text("utf-8"), re.M | re.S
)


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_matrix_is_planned_with_the_site_file_of_each_recipe(recipe, home):
    (home / "site.toml").write_text(recipe, encoding="utf-8")
    assert main(["plan", str(ROOT / "matrices" / "quickstart.toml"), "--site", "./site.toml"]) == 0


@pytest.mark.integration
@pytest.mark.slow
def test_python_of_the_documents_runs(two_runs, home, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "agg")
    document = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names = {}
    # in one namespace, as in a notebook
    for code in re.findall(r"^```python\n(.*?)^```", document, re.M | re.S):
        exec(code, names)
    assert names["cases"].case_id.tolist() == [CASE_1, CASE_2]
    assert names["best"].case_id == CASE_2
    assert names["as_good"].case_id.tolist() == [CASE_2]
    assert names["fastest"].case_id[0] == CASE_2
    assert (home / "scaling.pdf").is_file()
    assert "\\label{tab:fp32}" in capsys.readouterr().out
    assert (names["run"].path / "report" / "report.html").is_file()
    assert names["compared"].frame().verdict.tolist() == ["slower"] * 2


@pytest.mark.integration
@pytest.mark.slow
def test_exports_to_trackers_run(two_runs, monkeypatch):
    wandb, mlflow = MagicMock(), MagicMock()
    run = wandb.init.return_value
    run.__enter__.return_value = run
    run.summary = {}
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    document = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    for code in re.findall(r"^```python\n(.*?)^```", document, re.M | re.S):
        exec(code, {})
    assert [call.kwargs["name"] for call in wandb.init.call_args_list] == [CASE_1, CASE_2]
    assert [call.kwargs["step"] for call in run.log.call_args_list] == [*range(1, 8)] * 2
    assert run.summary["median_samples_per_s"] == pytest.approx(14400)
    started = mlflow.start_run.call_args_list
    assert [call.kwargs["run_name"] for call in started] == [CASE_1, CASE_2]
    metrics = [call.args[0]["samples_per_s"] for call in mlflow.log_metrics.call_args_list]
    assert metrics == pytest.approx([7200, 14400])
    assert Path(mlflow.log_artifact.call_args.args[0]).is_file()


@pytest.mark.integration
@pytest.mark.slow
def test_notebook_runs_and_draws_its_figure(two_runs, home, monkeypatch):
    monkeypatch.setenv("DLPERF_RESULTS", str(home / "results"))
    monkeypatch.setenv("PYTHONPATH", IMPORT_DIR)
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(home / name))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(home)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    assert len(list_outputs(notebook, "image/png")) == 1
    tables = "".join(list_outputs(notebook, "text/html"))
    assert CASE_2 in tables
    assert tables.count("slower") == 2


def test_notebook_has_its_outputs_and_nothing_of_the_machine():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert len(list_outputs(notebook, "image/png")) == 1
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"display_data", "execute_result"}
    text = "".join(list_outputs(notebook, "text/plain") + list_outputs(notebook, "text/html"))
    assert not re.search(r"/(home|work|tmp|root)/", text)
