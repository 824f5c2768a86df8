"""A run as metrics for Prometheus."""

import re

import pytest
from history_runs import CASE_1, CASE_2, add_run, fail_case, set_manifest

from dlperf_slurm.jobs.run_directory import open_run
from dlperf_slurm.reports.exports.openmetrics import serialize
from dlperf_slurm.reports.report_files import make_report

pytestmark = pytest.mark.integration

# a sample of the text format that node_exporter reads: no timestamp behind the value
SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\n"])*",?)+)\} (\S+)')


@pytest.fixture
def run(staged, home):
    return add_run(staged, 1)


def read(run):
    *lines, last = serialize(make_report(open_run(run), {}).summary).splitlines()
    assert last == "# EOF"
    samples = {}
    for line in lines:
        if line.startswith("# "):
            assert line.split()[1] in ("HELP", "TYPE")
            continue
        name, labels, value = SAMPLE.fullmatch(line).groups()
        found = re.search(r'case_id="([^"]*)"', labels)
        samples[name, found[1] if found else ""] = float(value)
    return samples


def test_each_case_has_its_throughput_and_repeats(run):
    fail_case(run, CASE_2)
    samples = read(run)
    assert samples["dlperf_throughput", CASE_1] == 8000
    assert samples["dlperf_throughput_low", CASE_1] < 8000
    assert ("dlperf_throughput", CASE_2) not in samples
    assert samples["dlperf_repeats_measured", CASE_2] == 0
    assert samples["dlperf_repeats_planned", CASE_2] == 7
    assert samples["dlperf_run_created_seconds", ""] == 1714564800
    assert samples["dlperf_run_info", ""] == 1


def test_labels_are_escaped(run):
    set_manifest(run, site_name='a"b\\c\nd')
    assert read(run)["dlperf_throughput", CASE_1] == 8000
