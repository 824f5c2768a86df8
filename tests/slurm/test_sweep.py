"""Sweeps over the nodes of a real Slurm, of which some are slow, fail or are drained."""

import json

import pytest
from support.slurm_runs import CHECKOUT, QUICK_POLLS, SITE, ask
from support.tool import await_that, run_tool, set_values

from dlperf_slurm.jobs.run_directory import find_run

pytestmark = pytest.mark.usefixtures("empty_queue")

BAD_NODES = 10
# steps of 20 ms, and 10 % more on n2; their times vary by half a percent
SCRIPT = """\
#!/bin/bash
[ "$SLURM_JOB_NODELIST" != n3 ] || { echo "RuntimeError: uncorrectable ECC error" >&2; exit 1; }
milliseconds=20
case $(scontrol show hostnames "$SLURM_JOB_NODELIST") in *n2*) milliseconds=22 ;; esac
sizes="devices=$SLURM_JOB_NUM_NODES batch_size_per_device=2 precision=fp32"
echo "dlperf-log/1 $sizes model=resnet50 mode=train"
awk -v mean=$milliseconds -v seed=$RANDOM 'BEGIN {
  srand(seed)
  for (step = 1; step <= 7; step++)
    printf "dlperf-log/1 step=%d seconds=%.6f\\n", step, mean / 1000 * (1 + (rand() - 0.5) / 50)
}'
echo "dlperf-log/1 end"
"""
MATRIX = """\
[model]
name = "resnet50"

[axes]
framework = "pytorch"
script = "steps"
topology = "{topology}"
batch_size_per_device = 2

[protocol]
warmup_steps = 2
measured_steps = 5

[scripts.steps]
launch = "single"
format = "dlperf_log"
command = "{script}"
"""


@pytest.fixture
def drained(cluster):
    """Drain n4 during the test."""
    ask("scontrol", "update", "nodename=n4", "state=drain", "reason=test")
    yield "n4"
    ask("scontrol", "update", "nodename=n4", "state=resume")
    # the state is "idle" a moment later
    await_that(lambda: ask("sinfo", "-hn", "n4", "-o", "%t").strip() == "idle", "n4 is idle")


def sweep(folder, topology, *options):
    """Sweep with a matrix of the script, wait for its end, and return the run."""
    script = folder / "steps"
    script.write_text(SCRIPT, encoding="utf-8")
    script.chmod(0o755)
    matrix = folder / "matrix.toml"
    matrix.write_text(MATRIX.format(script=script, topology=topology), encoding="utf-8")
    results = folder / "results"
    settings = set_values(*QUICK_POLLS, "directives=[]")
    words = ["sweep", str(matrix), "--site", str(SITE), "--results", str(results), *options]
    done = run_tool([*words, "--wait", *settings], CHECKOUT)
    assert done.returncode == BAD_NODES, done.stdout + done.stderr
    return find_run(None, results)


def read_verdicts(run):
    told = json.loads(run_tool(["nodes", str(run.path), "--json"], CHECKOUT).stdout)
    return {row["node"]: row["verdict"] for row in told["nodes"]}


def test_slow_failing_and_drained_nodes_are_named_and_the_sound_one_is_good(drained, tmp_path):
    run = sweep(tmp_path, "1n1g", "--blocks", "4")
    # each node had its own jobs, and no repeat went elsewhere
    for node in ("n1", "n2", "n3"):
        used = ask("sacct", "-nX", "--format=NodeList%20", f"--name={run.run_id}.1n1g-{node}")
        assert set(used.split()) == {node}
    assert read_verdicts(run) == {"n1": "good", "n2": "slow", "n3": "failed", "n4": "not available"}
    lists = {path.name: path.read_text().split() for path in run.path.glob("report/*_nodes.txt")}
    assert lists == {"good_nodes.txt": ["n1"], "bad_nodes.txt": ["n2", "n3"]}


def test_slow_node_of_a_sweep_over_pairs_is_told_from_its_partners(cluster, tmp_path):
    run = sweep(tmp_path, "2n1g", "--pairs", "--blocks", "3")
    for pair in ("n1,n2", "n3,n4"):
        name = f"{run.run_id}.2n1g-{pair.replace(',', '+')}"
        jobs = ask("sacct", "-nX", "--format=JobName%60,NodeList%20")
        used = [line.split()[1] for line in jobs.splitlines() if line.strip().startswith(name)]
        assert len(used) == 3
        assert set(used) == {f"n[{pair[1]}-{pair[4]}]"}
    found = read_verdicts(run)
    assert {name for name, verdict in found.items() if verdict == "slow"} == {"n2"}
    assert {"n1", "n2", "n3", "n4", "n1+n2", "n3+n4"} <= set(found)
