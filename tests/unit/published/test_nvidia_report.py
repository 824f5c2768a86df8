"""The report of NVIDIA's benchmark.py: a run for each number of GPUs and batch size."""

import json

import pytest

from dlperf_slurm.cli import main

REPORT = {
    "model": "",
    "ngpus": [1, 4],
    "bs": [64],
    "metric_keys": ["train.ips", "train.loss"],
    "metrics": {
        "1": {"64": {"train.ips": 700.5, "train.loss": 7.0}},
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
