"""A run as lines of MLPerf's logging."""

import json
from pathlib import Path

import pytest
from history_runs import add_run, fail_case

from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.logs.runs import ImportOptions, import_log
from dlperf_slurm.reports.exports.mllog import serialize
from dlperf_slurm.reports.report_files import make_report

pytestmark = pytest.mark.integration


@pytest.fixture
def lines(staged, home):
    path = add_run(staged, 1)
    fail_case(path, "pytorch-resnet50-1n2g-bs8-fp32")
    return serialize(make_report(open_run(path), {}).summary).splitlines()


def test_each_valid_repeat_is_a_run_from_start_to_stop(lines):
    assert all(line.startswith(":::MLLOG {") for line in lines)
    entries = [json.loads(line.partition(" ")[2]) for line in lines]
    assert {*entries[0]} == {"namespace", "time_ms", "event_type", "key", "value", "metadata"}
    keys = [entry["key"] for entry in entries]
    assert [keys.count(key) for key in ("run_start", "run_stop", "tracked_stats")] == [7] * 3
    times = [entry["time_ms"] for entry in entries if entry["metadata"].get("repeat") == 1]
    assert times == sorted(times)
    assert times[0] > 1e12


def test_import_reads_the_throughput_back(lines, home):
    stop = next(i for i, line in enumerate(lines) if "tracked_stats" in line)
    stats = json.loads(lines[stop].partition(" ")[2])
    Path("result_0.txt").write_text("\n".join(lines[: stop + 1]), encoding="utf-8")
    (run,) = import_log(Path("result_0.txt"), ImportOptions())
    assert run.samples_per_s == stats["value"]["throughput"]
