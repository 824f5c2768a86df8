"""Which framework's adapter test_adapter.py is about: each lives in a Python of its own."""

import os

from dlperf_slurm.worker.frameworks import list_frameworks


def pytest_addoption(parser):
    parser.addoption(
        "--framework",
        choices=list_frameworks(),
        help="test this framework's adapter, which must be installed in this Python",
    )


def pytest_configure(config):
    # not there when this folder is found only while collecting, as from the top
    if config.getoption("--framework", default=None) == "jax":
        # most of its tests is XLA, which compiles the same steps in many processes
        cache_dir = config.cache.mkdir("jax")
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache_dir))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
