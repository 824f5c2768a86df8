"""Run directories of version 1, which had the axes beside the other values of a case."""

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from dlperf_slurm.cli import main
from dlperf_slurm.contract.axes import DYNAMIC, INFER, LARGEST, WORKER
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import SCHEMA_VERSION, ContractError, read_json, write_json
from dlperf_slurm.contract.record import RECORD_FILE, Record
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, format_manifest
from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.results.collect import collect_outcomes
from dlperf_slurm.results.compare import compare_runs
from dlperf_slurm.results.history.entries import read_entries
from dlperf_slurm.results.labels import name_case
from dlperf_slurm.scheduler.retry import stage_retry

# made by version 0.1.0, with the report that it made: its digits and percentiles are those of now
RUN = Path(__file__).parents[2] / "data" / "run_v1"
LADDER = "pytorch-resnet50-1n1g-bs64-16-fp32"
SCALED = "pytorch-resnet50-1n1g-bs4-amp-fp16-scale128"


@pytest.fixture
def run_dir(tmp_path):
    return Path(shutil.copytree(RUN, tmp_path / "run"))


def read_attempt(case_id, name, kind, folder=RUN):
    return read_json(folder / "cases" / case_id / "r1" / "a1" / name, kind)


def test_report_has_the_tables_of_the_version_that_measured(run_dir):
    assert main(["report", str(run_dir)]) == 0
    made = (run_dir / "report" / "report.md").read_text(encoding="utf-8")
    assert made == (RUN / "expected" / "report.md").read_text(encoding="utf-8")


def test_csv_has_the_figures_of_the_version_that_measured(run_dir):
    main(["report", str(run_dir)])
    lines = {line["case_id"]: line for line in read_csv(run_dir / "report" / "report.csv")}
    before = read_csv(RUN / "expected" / "report.csv")
    assert set(lines) == {line["case_id"] for line in before}
    for was in before:
        # footnotes have become reasons and notes, and the word for inference is new
        figures = {name: value for name, value in was.items() if value and name != "footnotes"}
        figures["mode"] = figures["mode"].replace("val", "infer")
        # of two dozen batches, which are too few
        tails = ("latency_p90_", "latency_p95_", "latency_p99_")
        figures = {name: figures[name] for name in figures if not name.startswith(tails)}
        now = lines[was["case_id"]]
        assert {name: now[name] for name in figures} == figures


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_planned_cases_have_their_axes():
    cases = {case.case_id: case for case in open_run(RUN).manifest.cases}
    ladder, scaled = cases[LADDER].axes, cases[SCALED].axes
    assert (ladder.batch_size_per_device, ladder.batch_ladder) == ("64 -> 16", (64, 16))
    assert (ladder.loss_scale, scaled.loss_scale) == (DYNAMIC, 128)
    assert (scaled.topology, scaled.batch_size, scaled.script) == ("1n1g", 4, WORKER)


def test_case_asks_for_the_search_and_its_record_has_what_was_found():
    asked = read_attempt(LADDER, CASE_FILE, Case)
    record = read_attempt(LADDER, RECORD_FILE, Record)
    assert asked.axes.batch_size_per_device == "64 -> 16"
    assert record.case.axes == dataclasses.replace(asked.axes, batch_size_per_device=64)
    assert (record.case.world_size, record.case.log_format) == (1, None)


def test_inference_has_todays_word_and_is_compared_by_todays_case_id():
    (case,) = (case for case in open_run(RUN).manifest.cases if case.axes.mode == INFER)
    assert case.case_id.endswith("-val")
    entries = read_entries(RUN)
    assert [entry.case_id for entry in entries if entry.mode == INFER] == [
        case.case_id.replace("-val", "-infer")
    ]
    (outcomes,) = (c for c in collect_outcomes(open_run(RUN)) if c.case == case)
    new = dataclasses.replace(outcomes, case=dataclasses.replace(case, case_id=name_case(case)))
    run = open_run(RUN).manifest
    (comparison, *_) = compare_runs(run, [outcomes], run, [new]).comparisons
    assert comparison.case_id.endswith("-infer")


def edit(path, **changes):
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, **changes}), encoding="utf-8")


def test_case_of_the_largest_batch_and_of_another_script(run_dir):
    path = run_dir / "cases" / SCALED / "r1" / "a1" / CASE_FILE
    edit(path, batch_size_per_device=0, is_largest_batch=True, source="tensorpack")
    case = read_json(path, Case)
    assert case.axes.batch_size_per_device == LARGEST
    assert (case.axes.script, case.log_format, case.log_rule) == ("tensorpack", "tensorpack", None)


@pytest.mark.parametrize("missing", ["nodes", "framework", "batch_size_per_device"])
def test_case_that_lacks_what_all_had_is_named(run_dir, missing):
    path = run_dir / "cases" / LADDER / "r1" / "a1" / CASE_FILE
    data = json.loads(path.read_text(encoding="utf-8"))
    del data[missing]
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ContractError, match=f"{CASE_FILE}.*{missing}"):
        read_json(path, Case)


@pytest.mark.parametrize("value", ["=1+1", 3, None, [], ["x"], {}])
@pytest.mark.parametrize("name", [CASE_FILE, RECORD_FILE])
def test_anything_in_the_place_of_a_case_is_a_problem_of_its_repeat(run_dir, name, value):
    path = run_dir / "cases" / LADDER / "r1" / "a1" / name
    if name == RECORD_FILE:
        edit(path, case=value)
    else:
        path.write_text(json.dumps({"schema_version": 1, "model": value}), encoding="utf-8")
    problems = [o.problem for c in collect_outcomes(open_run(run_dir)) for o in c.outcomes]
    (problem,) = filter(None, problems)
    assert problem.startswith(f"broken record: {path}: ")


@pytest.mark.parametrize("cases", ["=1+1", 3, None, ["x"], [["x"]], [None]])
def test_anything_in_the_place_of_planned_cases_is_named(run_dir, cases):
    edit(run_dir / MANIFEST_FILE, cases=cases)
    with pytest.raises(InputError, match=MANIFEST_FILE):
        open_run(run_dir)


def test_what_was_read_is_written_in_the_new_version(run_dir):
    record = read_attempt(LADDER, RECORD_FILE, Record)
    write_json(run_dir / RECORD_FILE, record)
    assert read_json(run_dir / RECORD_FILE, Record) == record
    run = open_run(run_dir)
    (run_dir / MANIFEST_FILE).write_text(format_manifest(run.manifest), encoding="utf-8")
    again = open_run(run_dir)
    assert (run.schema_version, again.schema_version) == (1, SCHEMA_VERSION)
    assert again.manifest == run.manifest


def test_no_further_attempt_for_the_worker_of_version_1():
    with pytest.raises(InputError) as caught:
        stage_retry(open_run(RUN))
    message = str(caught.value)
    assert f"was made by dlperf_slurm {open_run(RUN).manifest.tool}, whose worker it" in message
    assert message.endswith(f"dlperf-slurm submit {RUN / 'matrix.toml'}")
