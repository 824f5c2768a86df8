"""Staging: what a run directory holds before its submission, whole or not at all."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders import HARNESS, SMALL_MATRIX, make_site, read_case, write_matrix

from dlperf_slurm.config.site import LoadedSite, Site, load_site, read_frozen_site
from dlperf_slurm.config.toml_tables import read_toml
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.case_file import read_planned_case
from dlperf_slurm.jobs.journal import STATE, Event, append_event
from dlperf_slurm.jobs.plan import PlannedMatrix, resolve
from dlperf_slurm.jobs.run_directory import HARNESS_FILE, SITE_FILE, Run, open_run
from dlperf_slurm.jobs.stage import make_run_id, stage_run
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.scheduler.retry import stage_retry

ONE_TASK = SMALL_MATRIX.replace('["1n1g", "1n2g", "2n2g"]', '"1n1g"').replace(
    "repeats = 2", "repeats = 1"
)


def stage(results: Path, text: str = SMALL_MATRIX, **site_values) -> Run:
    file = read_matrix(write_matrix(text))
    site = make_site(**site_values)
    plan = resolve(expand_matrix(file), site, 1001)
    return stage_run(
        results, PlannedMatrix(file, LoadedSite("tiny", site, {}), plan), ["dlperf-slurm"]
    )


def retry_from(folder: Path, run: Run, monkeypatch) -> None:
    """Stage another attempt of a run whose only array task failed, from another folder."""
    failed = Event(STATE, format_now(), group_id="1n1g", array_task_id=0, state="FAILED")
    append_event(run.path, failed)
    python = Path(read_frozen_site(run.path / SITE_FILE).environments["pytorch"].venv, "bin/python")
    python.parent.mkdir(parents=True, exist_ok=True)
    python.touch()
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    assert stage_retry(run) == 1


def test_case_that_the_job_writes_is_the_one_that_was_planned(home):
    run = stage(home / "results")
    for task in run.read_tasks("2n2g"):
        # as a scheduler would start it; there are no ranks to be started
        command = ["bash", str(run.get_script_path("2n2g")), str(task.array_task_id)]
        subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True)
        case = read_json(run.path / task.attempt_dir / "s0" / "case.json", Case)
        assert (case.world_size, case.global_batch_size, case.measured_steps) == (4, 32, 10)
        assert (case.repeat, case.attempt) == (task.repeat, 1)
        assert case == read_planned_case(run.path, task)


def test_run_has_the_matrix_as_it_was_written_and_nothing_for_tasks_before_they_start(staged_run):
    assert (staged_run.path / "matrix.toml").read_text(encoding="utf-8") == SMALL_MATRIX
    assert all(staged_run.get_script_path(group).is_file() for group in staged_run.list_group_ids())
    assert not (staged_run.path / "cases").exists()
    assert not [*staged_run.path.glob(".*")]
    assert [path.name for path in staged_run.path.parent.iterdir()] == [staged_run.run_id]


@pytest.mark.parametrize("name", ["example", "local"])
def test_site_is_kept_with_all_its_values(home, name):
    site = load_site(name, None, []).site
    run = stage(home / "results", **site.model_dump(exclude_none=True))
    chosen = {**site.environments, "pytorch": site.find_environment("pytorch")}
    kept = Site.model_validate(read_toml(run.path / "site.toml").data)
    assert kept == site.model_copy(update={"environments": chosen})


def test_retry_elsewhere_has_the_environment_the_data_and_the_template_of_the_run(
    home, monkeypatch
):
    own = '{% extends "base.sbatch.j2" %}\n{% block prologue %}\n# ours\n{% endblock %}\n'
    (home / "own.sbatch.j2").write_text(own, encoding="utf-8")
    for folder in (home, home / "elsewhere"):
        (folder / "data" / "images").mkdir(parents=True)
    text = ONE_TASK.replace("[axes]\n", '[axes]\ndata = "folder"\n')
    run = stage(home / "results", text, template="own.sbatch.j2")
    cases, harness = (run.path / "cases.jsonl").read_bytes(), run.path / HARNESS_FILE
    assert harness.read_bytes() == HARNESS.read_bytes()
    # a retry by another version of the tool keeps the harness of the run
    harness.write_text("# of another version\n", encoding="utf-8")
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", "/elsewhere")
    retry_from(home / "elsewhere", run, monkeypatch)
    assert harness.read_text(encoding="utf-8") == "# of another version\n"
    assert (run.path / "cases.jsonl").read_bytes() == cases
    assert cases.count(b"\n") == 1
    first, second = (
        run.get_script_path(group_id).read_text() for group_id in ("1n1g", "1n1g-try2")
    )
    assert second.replace("1n1g-try2", "1n1g") == first
    assert "# ours\n" in first
    first, second = (read_case(run, task) for task in run.read_all_tasks())
    assert (first.attempt, second) == (1, dataclasses.replace(first, attempt=2))
    assert first.data_dir == str(home / "data" / "images")


def test_manifest_is_read_back_as_it_was_written_with_what_is_left_out(home):
    untitled = SMALL_MATRIX.replace('title = "Small"\n', "")
    tracking = {"poll_seconds": 5, "lost_after_seconds": 60}
    run = stage(home / "results", untitled, max_nodes=1, tracking=tracking)
    assert open_run(run.path) == run
    assert (run.manifest.poll_seconds, run.manifest.lost_after_seconds) == (5.0, 60.0)
    # after its file
    assert run.manifest.title == "matrix"
    reasons = {case.axes.topology: case.reason[:4] for case in run.manifest.cases}
    assert reasons == {"1n1g": "", "1n2g": "", "2n2g": "2n2g"}


def test_frozen_worker_runs_without_the_package_and_with_the_formats_of_the_matrix(home):
    own = "[formats.mine]\nlines = [{ pattern = 'it (?P<step>.)' }]\n"
    script = "[scripts.mine]\nformat = 'mine'\ncommand = 'true'\n"
    run = stage(home / "results", ONE_TASK.replace("[protocol]", f"{own}{script}[protocol]"))
    code = (
        "import dlperf_slurm.worker, sys; print(sys.modules['dlperf_slurm'].__file__)\n"
        "from dlperf_slurm.logs import load_format; print(load_format('mine').SIGNATURE.pattern)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(run.path / "code")},
        capture_output=True,
        text=True,
    )
    imported, pattern = done.stdout.splitlines()
    assert imported == str(run.path / "code/dlperf_slurm/__init__.py")
    assert "it (?:.)" in pattern


def test_frozen_code_is_the_worker_and_no_more(staged_run):
    code = staged_run.path / "code/dlperf_slurm"
    assert sorted(path.name for path in code.iterdir()) == [
        "__init__.py", "contract", "files", "logs", "published", "version.py", "worker",
    ]  # fmt: skip
    assert {path.name for path in (code / "published").iterdir()} == {"__init__.py", "logs"}
    assert not [*code.rglob("__pycache__")]
    # Python 3.7 cannot read TOML
    assert {path.suffix for path in (code / "published/logs").iterdir()} == {".py", ".json"}


def test_value_that_cannot_be_rendered_or_written_leaves_no_run_behind(home):
    with pytest.raises(InputError):
        stage(home / "results", partition="a\nb")
    assert not any((home / "results").iterdir())
    (home / "results").rmdir()
    (home / "results").write_text("a file", encoding="utf-8")
    with pytest.raises(InputError, match=r"results: cannot be written: "):
        stage(home / "results")


# `squeue --name=` takes a comma for the end of a name
def test_run_id_is_safe_in_a_path_and_as_a_job_name():
    for name in ("bert", "a b", "a,b", "a'b", "$(x)", "`x`", "#", "a\\b", "a\nb", "%A", "é"):
        found = {make_run_id(name, name) for _ in range(8)}
        assert len(found) > 1
        for run_id in found:
            assert re.fullmatch(r"\d{8}-\d{6}-[A-Za-z0-9._-]+-[0-9a-f]{4}", run_id)
