"""tensorpack's trainers for real, in the environment of tensorflow1: what their logs measured."""

import subprocess
import sys

import pytest
from support import attempts, sessions

from dlperf_slurm.contract.record import OK
from dlperf_slurm.logs.runs import ImportOptions, import_log

INSTALL = "needs TensorFlow 1 with tensorpack: dlperf-slurm env create tensorflow1"
tf = pytest.importorskip("tensorflow", reason=INSTALL)
if not tf.__version__.startswith("1."):
    pytest.skip(INSTALL, allow_module_level=True)
pytest.importorskip("tensorpack", reason=INSTALL)

from dlperf_slurm.worker.scripts.tensorpack.inputs import find_missing_operators  # noqa: E402

BATCH_SIZE = 4
MEASURED_STEPS = 6
COMMAND = [
    *(sys.executable, "-m", "dlperf_slurm.worker.scripts.tensorpack.resnet50", "--device", "cpu"),
    *("--batch", str(BATCH_SIZE), "--image-size", "32", "--width", "8", "--classes", "10"),
    *("--stage-blocks", "1", "1", "1", "1"),
    *("--warmup-steps", "2", "--measured-steps", str(MEASURED_STEPS)),
]


def run(folder, command, **changed_env):
    """(exit code, path of all that it wrote)."""
    log = folder / "log"
    env = {**attempts.make_environment(sessions.CHECKOUT), **changed_env}
    with log.open("wb") as file:
        done = subprocess.run(
            command, cwd=str(folder), env=env, stdout=file, stderr=subprocess.STDOUT, timeout=300
        )
    return done.returncode, log


def assert_log_is_read(log, devices):
    (found,) = import_log(log, ImportOptions("tensorpack"))
    assert (found.status, found.reason) == (OK, ""), log.read_text()
    identity = found.identity
    assert (identity.devices, identity.batch_size_per_device) == (devices, BATCH_SIZE)
    assert found.window.steps == MEASURED_STEPS
    assert found.samples_per_s > 0


@pytest.mark.parametrize(
    ("update", "data", "devices"),
    [
        ("replicated", "device", 1),
        ("replicated", "dataset", 1),
        ("replicated", "host", 2),
        ("parameter_server", "python-queue", 2),
    ],
)
def test_trains_and_its_log_is_read(update, data, devices, tmp_path):
    options = ["--update", update, "--data", data, "--devices", str(devices)]
    code, log = run(tmp_path, [*COMMAND, *options])
    assert code == 0, log.read_text()
    assert_log_is_read(log, devices)


def test_processes_of_horovod_write_one_log(tmp_path):
    pytest.importorskip("horovod", reason="dlperf-slurm env create tensorflow1 --horovod")
    options = ["--update", "horovod", "--data", "python-queue"]
    code, log = run(tmp_path, [*attempts.make_mpirun(attempts.CASE), *COMMAND, *options])
    assert code == 0, log.read_text()
    assert_log_is_read(log, devices=2)


def test_more_gpus_than_there_are_is_an_error_of_one_line(tmp_path):
    options = ["--update", "replicated", "--data", "device", "--device", "cuda", "--devices", "99"]
    code, log = run(tmp_path, [*COMMAND, *options], CUDA_VISIBLE_DEVICES="")
    last = log.read_text().splitlines()[-1]
    assert (code, last) == (2, "error: --devices 99: TensorFlow sees 0 GPUs")


@pytest.mark.parametrize(
    ("module", "lack"),
    [
        (None, "this environment has no package zmq_ops"),
        ("", "this environment has another package of the name zmq_ops"),
        ("class ZMQPullSocket: pass", ""),
    ],
)
def test_operators_of_zmq_are_looked_for(module, lack, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "zmq_ops", raising=False)
    if module is None:
        monkeypatch.setitem(sys.modules, "zmq_ops", None)
    else:
        (tmp_path / "zmq_ops.py").write_text(module)
        monkeypatch.syspath_prepend(str(tmp_path))
    found = find_missing_operators()
    assert (lack in found) if lack else found == ""
