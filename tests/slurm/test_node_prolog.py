"""Work of nodes before the ranks start: health checks that fail on one node, and data staging."""

import json
import subprocess

import pytest
from support.attempts import unfold
from support.slurm_runs import (
    CHECKOUT,
    NO_PEAKS,
    QUICK_POLLS,
    stage_matrix,
    stage_spin,
    submit,
    wait,
)
from support.tool import find_details, find_states, run_tool

from dlperf_slurm.contract.case import CASE_FILE
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.nodes import read_node_reports
from dlperf_slurm.contract.record import RECORD_FILE, Record
from dlperf_slurm.contract.step_archive import DETAILS_FILE

pytestmark = pytest.mark.usefixtures("empty_queue")

UNHEALTHY = 8
MATRIX = """\
[model]
name = "resnet50"
dataset = "drawn"
image_size = 32
width = 8
stage_blocks = [1, 1, 1, 1]
classes = 2

[axes]
framework = "pytorch"
topology = ["2n1g"]
batch_size_per_device = 2
data = "folder"

[protocol]
repeats = 1
warmup_steps = 1
measured_steps = 2
"""


def make_failing_check(folder):
    """Return a line of bash that fails on one node: the first that runs it."""
    return (
        f'mkdir {folder} 2> /dev/null && echo "$SLURMD_NODENAME" > {folder}/name; '
        f'[ "$(cat {folder}/name)" != "$SLURMD_NODENAME" ] || {{ echo "no link"; exit 3; }}'
    )


def test_node_that_fails_a_check_is_named_and_left_out_of_the_next_attempt(cluster, tmp_path):
    check = make_failing_check(tmp_path / "bad")
    touched = tmp_path / "set-up"
    touched.mkdir()
    settings = [
        f"node.check.commands={json.dumps(check)}",
        f"node.setup='touch {touched}/$SLURMD_NODENAME.$SLURM_JOB_ID'",
    ]
    run = stage_spin(tmp_path / "results", ["2n2g"], settings=settings)
    submit(run)
    done = wait(run)
    bad = (tmp_path / "bad" / "name").read_text().strip()
    assert done.returncode == 0, done.stdout + done.stderr
    assert find_states(run) == {"2n2g.0": "UNHEALTHY", "2n2g-try2.0": "COMPLETED"}
    why = find_details(run)["2n2g.0"]
    assert why.startswith(f"node {bad} is unhealthy: check ")
    assert why.endswith("failed with exit code 3: no link")
    assert f"UNHEALTHY ({why})" in " ".join(done.stdout.split())
    assert f"excluding {bad}" in done.stdout
    first, second = sorted(run.path.glob("cases/*/r1/a*/s0"))
    assert {report.node for report in read_node_reports(first) if report.problems} == {bad}
    # no rank started in the attempt with the unhealthy node
    assert not (first / "starts").exists()
    record = read_json(second / "record.json", Record)
    assert bad not in {rank.host for rank in record.ranks}
    # two attempts on two nodes each
    assert len(list(touched.iterdir())) == 4


def test_run_whose_nodes_stay_unhealthy_ends_with_an_exit_code_of_its_own(cluster, tmp_path):
    settings = ['node.check.commands="echo worn out; false"', "retry.node_fail=0"]
    run = stage_spin(tmp_path / "results", settings=settings)
    submit(run)
    done = wait(run)
    assert done.returncode == UNHEALTHY, done.stdout + done.stderr
    assert find_states(run) == {"1n1g.0": "UNHEALTHY"}
    assert "is unhealthy: check 'echo worn out; false' failed with exit code 1" in done.stdout
    status = run_tool(["status", str(run.path)], CHECKOUT)
    assert "1 UNHEALTHY" in status.stdout
    report = (run.path / "report" / "report.html").read_text(encoding="utf-8")
    assert "is unhealthy: check" in report


def test_processes_that_another_job_left_are_found(cluster, tmp_path):
    run = stage_spin(
        tmp_path / "results",
        settings=[
            "node.check.stale_processes=true",
            "retry.node_fail=0",
            'directives=["--nodelist=n3"]',
        ],
    )
    left = "SLURM_JOB_ID=1 setsid sleep 987 > /dev/null 2>&1 < /dev/null & echo $!"
    pid = cluster.call("exec", "n3", "bash", "-c", left).strip()
    try:
        submit(run)
        assert wait(run).returncode == UNHEALTHY
    finally:
        cluster.call("exec", "n3", "kill", pid)
    assert "processes of another job are still running: sleep (" in find_details(run)["1n1g.0"]


def test_data_is_copied_once_to_each_node_and_read_from_there(cluster, tmp_path):
    """Stage the data set from an archive, which ranks cannot read themselves."""
    folder, archive = tmp_path / "drawn", tmp_path / "drawn.tar"
    words = ["data", "make", "images", str(folder), "--train", "16", "--val", "4", "--classes", "2"]
    made = run_tool(words, CHECKOUT)
    assert made.returncode == 0, made.stdout + made.stderr
    subprocess.run(["tar", "-cf", str(archive), "-C", str(folder), "."], check=True)
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(MATRIX, encoding="utf-8")
    settings = [
        f"datasets.drawn.path={archive}",
        "datasets.drawn.stage_to=/dev/shm/${SLURM_JOB_ID}/drawn",
        "datasets.drawn.on_login_node=false",
        *QUICK_POLLS,
        NO_PEAKS,
    ]
    run = stage_matrix(matrix, tmp_path / "results", *settings)
    submit(run)
    done = wait(run)
    assert done.returncode == 0, done.stdout + done.stderr
    (start,) = run.path.glob("cases/*/r1/a1/s0")
    assert {path.name for path in start.iterdir()} <= {
        CASE_FILE,
        RECORD_FILE,
        DETAILS_FILE,
        "out",
        "err",
    }
    unfold(start)
    reports = read_node_reports(start)
    assert len(reports) == 2
    files = [path for path in folder.rglob("*") if path.is_file()]
    for report in reports:
        (copy,) = report.copies
        assert copy.path.startswith("/dev/shm/")
        assert (copy.files, copy.was_there) == (len(files), False)
        assert copy.size_bytes == sum(path.stat().st_size for path in files)
        assert copy.seconds > 0
        left = cluster.call("exec", report.node, "ls", copy.path)
        assert "dataset.json" in left
        cluster.call("exec", report.node, "rm", "-r", copy.path)
