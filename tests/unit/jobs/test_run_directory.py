"""Run directories: how one is named, found and opened, and what cannot be opened."""

import json
import shutil
from pathlib import Path

import pytest
from builders import make_manifest, make_planned_case
from support.ordinary_user import as_ordinary_user
from support.problems import assert_problem

from dlperf_slurm.config.folders import find_user_name
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.manifest import format_manifest
from dlperf_slurm.jobs.markers import (
    Marker,
    MarkerFolder,
    list_markers,
    read_last_error,
    read_marker,
)
from dlperf_slurm.jobs.run_directory import (
    RunTask,
    find_run,
    list_latest_attempts,
    list_run_ids,
    open_run,
)


@pytest.fixture
def results(home):
    """Three runs; two of them begin with the same day."""
    for run_id in ("20240502-080000-b", "20240501-120000-a", "20240502-090000-c"):
        folder = home / "results" / run_id
        folder.mkdir(parents=True)
        manifest = make_manifest(run_id=run_id, cases=(make_planned_case(notes=("a",)),))
        (folder / "manifest.json").write_text(format_manifest(manifest), encoding="utf-8")
    (home / "results" / "README.md").write_text("", encoding="utf-8")
    shutil.copytree(folder, home / "results" / ".20240503-partial.partial")
    return home / "results"


def edit_manifest(folder, **changes):
    path = folder / "manifest.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data.update(changes)
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize(
    ("named", "run_id"),
    [
        (None, "20240502-090000-c"),
        ("latest", "20240502-090000-c"),
        ("latest~2", "20240501-120000-a"),
        ("20240502-080000-b", "20240502-080000-b"),
        ("20240501", "20240501-120000-a"),
        ("results/20240501-120000-a", "20240501-120000-a"),
    ],
)
def test_run_is_found_by_its_id_the_beginning_of_it_or_its_directory(results, named, run_id):
    assert find_run(named, results).path == results / run_id


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("20240502", ("20240502-080000-b", "20240502-090000-c")),
        ("x", ("20240502-090000-c",)),
        ("latest~3", ("20240501-120000-a",)),
        ("latest~", ("20240502-090000-c",)),
    ],
)
def test_run_that_is_not_the_only_one_is_refused_with_the_latest(results, named, says):
    with pytest.raises(InputError) as caught:
        find_run(named, results)
    assert_problem(caught.value, key=named, says=says)


def test_results_without_runs_say_so(home):
    with pytest.raises(InputError, match=r"results: no such folder"):
        find_run(None, home / "results")
    (home / "results").mkdir()
    with pytest.raises(InputError, match=r"results: contains no runs"):
        find_run(None, home / "results")


@pytest.mark.parametrize(
    ("denied", "named"),
    [("20240502-090000-c", None), ("20240502-090000-c", "results/20240502-090000-c"), (".", "x")],
)
def test_run_that_may_not_be_read_is_named_with_its_owner(home, results, denied, named):
    for run_id in list_run_ids(results)[:2]:
        shutil.rmtree(results / run_id)
    (results / denied).chmod(0)
    with as_ordinary_user(home), pytest.raises(InputError) as caught:
        find_run(named, Path("results"))
    (results / denied).chmod(0o700)
    owner = find_user_name((results / denied).stat().st_uid)
    command = f"chmod -R g+rX {Path('results', denied)}"
    assert_problem(caught.value, says=(f"belongs to user {owner}", command))


def test_folder_without_a_manifest_of_json_is_not_a_run(home, results):
    with pytest.raises(InputError, match=r"manifest\.json"):
        open_run(home)
    path = results / "20240501-120000-a" / "manifest.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"manifest\.json: not JSON"):
        open_run(path.parent)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"colour": "red"}, "colour"),
        ({"cases": [{"case_id": "a"}]}, r"cases\[0\]\."),
        ({"poll_seconds": 0}, "poll_seconds"),
        ({"within_seconds": -1}, "within_seconds"),
        ({"run_id": ".."}, ".*run_id"),
        ({"interleaved": ["a", "b"]}, "interleaved"),
        ({"nodes": ["n1", "n1"]}, "nodes"),
        ({"absent_nodes": [f"n{number}: down" for number in range(16_385)]}, "nodes.*16384"),
        ({"nodes": [f"n{number}" for number in range(1000)]}, "nodes"),
        ({"interleaved": ["20240501-120000-a", "../b"]}, "interleaved"),
        ({"created_at": "yesterday"}, ".*created_at"),
        ({"scheduler": "pbs"}, "scheduler is 'pbs'; known: slurm, local"),
    ],
)
def test_manifest_with_a_wrong_key_is_refused_by_its_name(results, changes, says):
    edit_manifest(results / "20240501-120000-a", **changes)
    with pytest.raises(InputError, match=rf"manifest\.json: {says}"):
        open_run(results / "20240501-120000-a")


@pytest.mark.parametrize("protocol", [3, {"sead": 3}, {"seed": 0.5}, {"seed": -3}])
def test_manifest_with_a_setting_that_no_matrix_has_is_refused_by_its_name(results, protocol):
    edit_case(results / "20240501-120000-a", protocol=protocol)
    with pytest.raises(InputError, match=r"manifest\.json: cases\[0\]\.protocol.*(se[ae]d|3)"):
        open_run(results / "20240501-120000-a")


def edit_case(folder, **changes):
    """Give the only case of a manifest these values."""
    (case,) = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["cases"]
    edit_manifest(folder, cases=[{**case, **changes}])
    return {**case, **changes}


def test_settings_that_a_manifest_tells_are_read_and_no_default_is_added(results):
    data = edit_case(results / "20240501-120000-a", protocol={"seed": 2**63 - 1})
    (case,) = open_run(results / "20240501-120000-a").manifest.cases
    assert case.protocol == {"seed": 2**63 - 1}
    assert case.settings == {"seed": 2**63 - 1, "repeats": 3, "blocks": 1}
    edit_manifest(results / "20240501-120000-a", cases=[data, data])
    with pytest.raises(InputError, match=r"manifest\.json: .*two cases .*case_id"):
        open_run(results / "20240501-120000-a")


def test_latest_attempt_of_each_repeat_counts():
    tasks = [
        RunTask("g", 0, "cases/x/r1/a1"),
        RunTask("g-try2", 0, "cases/x/r1/a2"),
        RunTask("g", 1, "cases/x/r2/a1"),
        RunTask("g", 2, "cases/y/r1/a1"),
    ]
    assert [task.attempt_dir for task in list_latest_attempts(tasks)] == [
        "cases/x/r1/a2", "cases/x/r2/a1", "cases/y/r1/a1",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{}", "[]"])
def test_broken_marker_counts_as_none(staged_run, text):
    (staged_run.path / "markers/1n1g.0.started").write_text(text, encoding="utf-8")
    assert read_marker(staged_run.path, "1n1g.0", "started") is None


BOTH = frozenset({(0, "started"), (0, "ended")})
FINISHED = (
    '{"job_id": "7", "begun": "2024-05-01T12:00:00Z", "time": "2024-05-01T12:09:00Z", '
    '"nodes": "n1", "restart": 0, "exit_code": 3}\n'
)


def test_one_marker_of_a_start_that_finished_is_that_of_its_begin_and_of_its_end(staged_run):
    (staged_run.path / "markers/1n1g.0.s0.finished").write_text(FINISHED, encoding="utf-8")
    began = Marker("7", "2024-05-01T12:00:00Z", "n1", 3)
    assert read_marker(staged_run.path, "1n1g.0", "started", 0) == began
    ended = began._replace(time="2024-05-01T12:09:00Z")
    assert read_marker(staged_run.path, "1n1g.0", "ended", 0) == ended
    assert list_markers(staged_run.path) == {"1n1g.0": BOTH}


def test_marker_of_a_begin_may_go_before_after_or_as_that_of_the_end_is_seen(staged_run):
    folder = MarkerFolder(staged_run.path)
    markers = staged_run.path / "markers"
    for number in range(3):
        (markers / f"1n1g.{number}.s0.started").touch()
    assert folder.read()["1n1g.0"] == {(0, "started")}
    (markers / "1n1g.0.s0.finished").touch()
    (markers / "1n1g.1.s0.finished").touch()
    (markers / "1n1g.1.s0.started").unlink()
    assert [folder.read()[f"1n1g.{number}"] for number in (0, 1)] == [BOTH, BOTH]
    (markers / "1n1g.0.s0.started").unlink()
    (markers / "1n1g.2.s0.started").unlink()
    seen = folder.read()
    assert [seen[f"1n1g.{number}"] for number in range(3)] == [BOTH, BOTH, frozenset()]


def test_task_list_that_is_missing_is_named(staged_run):
    staged_run.get_tasks_path("1n2g").unlink()
    with pytest.raises(InputError, match=r"scripts/1n2g\.tasks: is missing"):
        staged_run.read_all_tasks()


@pytest.mark.parametrize(
    ("written", "last"),
    [
        (b"\n \n", ""),
        (b"first\nlast\n\n", "last"),
        (
            b"/x: line 7: v/python: Exec format error\n/x: line 7: v/python: Success\n",
            "v/python: Exec format error",
        ),
        (b"first\n\0last\n\0\n", "last"),
        (b"first\n" + b"x" * 999, "x" * 200),
        (b"\xff\xfe" * 999 + b"\nlast", "last"),
    ],
)
def test_last_error_is_the_last_line_that_says_something(tmp_path, written, last):
    (tmp_path / "err").write_bytes(written)
    assert read_last_error(tmp_path, tmp_path) == last
