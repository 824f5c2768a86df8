"""The report of NVIDIA's benchmark.py: a run for each number of GPUs and batch size."""

import json

import pytest
from builders import find_task, make_record, read_case, write_record

from dlperf_slurm.cli import main
from dlperf_slurm.published.figures import read_source

REPORT = {
    "model": "",
    "ngpus": [1, 4],
    "bs": [64],
    "metric_keys": ["train.ips", "val.ips"],
    "metrics": {
        "1": {"64": {"train.total_ips": 700.5, "val.latency_avg": 7.0}},
        "4": {"64": {"train.ips": 2700.0, "val.ips": 9000.0}},
    },
}


def _import(capsys, *options):
    code = main(["import-logs", "fp32.json", "--json", *options])
    return code, json.loads(capsys.readouterr().out)


def test_each_throughput_is_a_run(home, capsys):
    (home / "fp32.json").write_text(json.dumps(REPORT, indent=1), encoding="utf-8")
    code, entries = _import(capsys)
    assert code == 0
    assert [
        (
            entry["samples_per_s"],
            entry["identity"]["devices"],
            entry["identity"]["batch_size_per_device"],
            entry["identity"]["mode"],
            entry["identity"]["precision"],
        )
        for entry in entries
    ] == [
        (700.5, 1, 64, "train", "fp32"),
        (2700.0, 4, 64, "train", "fp32"),
        (9000.0, 4, 64, "infer", "fp32"),
    ]


@pytest.mark.parametrize("value", [None, -1.0, "fast"])
def test_value_that_is_no_rate_is_a_failed_run(home, capsys, value):
    report = {**REPORT, "metrics": {"1": {"64": {"train.ips": value}}}}
    (home / "fp32.json").write_text(json.dumps(report), encoding="utf-8")
    code, (entry,) = _import(capsys, "--dry-run")
    assert (code, entry["status"]) == (5, "failed")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"ngpus": 1, "bs": 1, "metrics": 3}'])
def test_other_json_is_no_report(home, capsys, text):
    (home / "fp32.json").write_text(text, encoding="utf-8")
    code, (entry,) = _import(capsys, "--dry-run")
    assert (code, entry["format"]) == (5, "")


def test_published_figures_have_the_same_shape_and_are_read_again(home, capsys):
    source = "nvidia_mxnet_resnet50_inference"
    options = ["--layout", "nvidia", "--published", source, "--json"]
    assert main(["report", *options]) == 0
    reports = json.loads(capsys.readouterr().out)
    report = reports[0]
    assert report.keys() == REPORT.keys()
    figures = read_source(source)
    figures = figures[figures.hardware == figures.hardware.iloc[0]]
    assert report["ngpus"] == [1]
    assert report["bs"] == [*figures.batch_size_per_device.unique()]
    found = report["metrics"]["1"]["64"]
    row = figures[figures.batch_size_per_device == 64].iloc[0]
    assert found["val.ips"] == row.samples_per_s
    assert found["val.latency_avg"] == row.latency_avg_ms / 1000
    (home / "fp32.json").write_text(json.dumps(reports), encoding="utf-8")
    asked = [word for key in ("model=x", "framework=mxnet") for word in ("--set", key)]
    code, entries = _import(capsys, *asked)
    # what a report calls its model tells its cases apart, and is not guessed to be one of ours
    assert code == 0
    assert {entry["identity"]["software"] for entry in entries} == {r["model"] for r in reports}
    written = sum(len(sizes) for one in reports for sizes in one["metrics"].values())
    assert len(entries) == written
    assert entries[0]["samples_per_s"] == figures.samples_per_s.iloc[0]
    assert main(["report", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["cases"]) == written


def test_run_of_three_topologies_is_one_report_with_null_for_what_failed(staged_run, capsys):
    task = find_task(staged_run, "1n1g")
    write_record(staged_run, task, make_record(read_case(staged_run, task)))
    assert main(["report", "--layout", "nvidia", "--json"]) == 5
    report = json.loads(capsys.readouterr().out)
    rates = {"1": 40.0, "2": None, "4": None}
    assert report["metrics"] == {gpus: {"8": {"train.ips": rate}} for gpus, rate in rates.items()}


def test_layout_without_a_json_form_is_refused(staged_run, capsys):
    assert main(["report", "--layout", "dlperf", "--json"]) == 2
    assert "nvidia" in capsys.readouterr().err
