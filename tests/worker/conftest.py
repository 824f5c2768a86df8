"""Which framework's adapter test_adapter.py is about: each lives in a Python of its own."""

from dlperf_slurm.worker.frameworks import list_frameworks


def pytest_addoption(parser):
    parser.addoption(
        "--framework",
        choices=list_frameworks(),
        help="test this framework's adapter, which must be installed in this Python",
    )
