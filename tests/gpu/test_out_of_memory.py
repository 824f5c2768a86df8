"""What frameworks raise on a GPU whose memory another process has taken nearly all of.

Runs in PyTorch's Python, which takes the memory.
"""

import json
import os
import subprocess
import sys

import pytest
from support.gpu_report import NOT_FOR_THIS_GPU
from support.sessions import CHECKOUT

FRAMEWORKS = ("pytorch", "jax", "tensorflow2")
TOLD = "out-of-memory-test: "
# JAX without memory for its context finds no GPU at all: not for the batch's sake
NO_DEVICE = "no supported devices found"
HOLD = """
import sys, torch
left = int(sys.argv[1]) << 20
free, _ = torch.cuda.mem_get_info()
held = torch.empty(max(free - left, 1), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""
STEP = f"""
import json, sys
from support import sessions
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.out_of_memory import is_out_of_memory
framework, model = sys.argv[1:]
case = sessions.make_case(
    framework, model, device="cuda", model_parameters={{}}, precision="amp-bf16"
)
found = "", True
try:
    session = sessions.start(case)
    for _ in range(2):
        session.step()
    session.synchronize()
except BaseException as error:
    said = f"{{type(error).__module__}}.{{type(error).__name__}}: {{error}}"
    found = said[:700], is_out_of_memory(error, load_adapter(framework).OUT_OF_MEMORY)
print("\\n{TOLD}" + json.dumps(found))
"""


@pytest.mark.parametrize("left_mib", [500, 900, 1400])
@pytest.mark.parametrize("model", ["resnet50", "bert"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_error_in_little_memory_is_out_of_memory(framework, model, left_mib, pythons, capsys):
    if framework not in pythons:
        pytest.skip(f"{NOT_FOR_THIS_GPU}{framework} is not asked for")
    path = os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "tests")])
    env = {**os.environ, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(left_mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        done = subprocess.run(
            [pythons[framework], "-c", STEP, framework, model],
            env=env,
            capture_output=True,
            text=True,
        )
        holder.stdin.close()
    said = done.stdout.rpartition(TOLD)[2]
    assert TOLD in done.stdout, f"exit code {done.returncode}\n{done.stderr[-2000:]}"
    message, is_recognized = json.loads(said)
    # for the log of this part
    with capsys.disabled():
        print(f"{framework} {model}, {left_mib} MiB: {message or 'ran'}")
    if NO_DEVICE in message:
        pytest.skip(f"{NOT_FOR_THIS_GPU}{NO_DEVICE}")
    assert is_recognized, message
