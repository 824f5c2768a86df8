"""Scripts like public trainers, by `[scripts]` on site local, from matrix to report."""

import json
from pathlib import Path

import pytest
from support.releases import ENVIRONMENTS
from support.tool import run_tool
from trainers.scripts import STEP_SECONDS

SCRIPTS = Path(__file__).with_name("scripts.py")
BATCH_SIZE, STEPS = 8, 60
MATRIX = """\
{ours}
[axes]
framework = "pytorch"
topology = "{topology}"
batch_size_per_device = {size}
script = "mine"
[protocol]
repeats = 1
warmup_steps = 10
measured_steps = 20
[scripts.mine]
model = "{model}"
format = "{name}"
launch = "{launch}"
command = "python '{path}' {name} {{{{ batch_size_per_device }}}} {steps}"
"""


@pytest.mark.parametrize(
    ("name", "model", "topology", "steps"),
    [
        ("horovod_synthetic", "", "1n2g", STEPS),
        # without an end
        ("pytorch_examples", "", "1n1g", ""),
        ("nanogpt", "gpt2-124m", "1n1g", STEPS),
    ],
)
def test_script_runs_from_matrix_to_report(tmp_path, name, model, topology, steps):
    ours = "" if model else 'model.name = "resnet50"'
    launch = "per-rank" if topology == "1n2g" else "single"
    values = {"ours": ours, "size": BATCH_SIZE, "path": SCRIPTS, "launch": launch, "steps": steps}
    matrix = MATRIX.format(name=name, model=model, topology=topology, **values)
    (tmp_path / "matrix.toml").write_text(matrix, encoding="utf-8")
    venv = f"environments.pytorch.venv={ENVIRONMENTS / 'pytorch'}"
    options = ["--set", venv, "--set", "max_devices_per_node=2"]
    done = run_tool(["submit", "matrix.toml", "--site", "local", "--wait", *options], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_tool(["report", "--json"], tmp_path)
    (case,) = json.loads(done.stdout)["cases"]
    ideal = int(topology[2]) * BATCH_SIZE / STEP_SECONDS
    # a busy machine is slower, none is faster
    assert ideal / 4 < case["samples_per_s"] <= ideal
