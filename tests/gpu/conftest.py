"""Checks on real GPUs; if there are too few they are skipped, with the reason for the report.

`tests/run_on_gpus.py` runs them, in any Python that has the framework, NumPy and pytest.
"""

from pathlib import Path

import pytest
from support.gpu_machine import list_gpus
from support.gpu_report import MEASURED, NOT_FOR_THIS_GPU

CUDA = "cuda"


def pytest_addoption(parser):
    parser.addoption("--framework", help="whose environment this Python is")
    parser.addoption("--device", default=CUDA, choices=[CUDA, "cpu"], help="cpu: only try the code")
    parser.addoption(
        "--python", action="append", default=[], metavar="FRAMEWORK=PATH", help="others' Pythons"
    )


def pytest_configure(config):
    config.addinivalue_line("markers", "gpus(count): needs so many NVIDIA GPUs, not one")
    config.addinivalue_line("markers", "any_device: with --device cpu it runs at a small size")


def pytest_runtest_setup(item):
    if item.config.getoption("--device", default=CUDA) != CUDA:
        if not item.get_closest_marker("any_device"):
            pytest.skip(f"{NOT_FOR_THIS_GPU}a CPU cannot show it")
        return
    marker = item.get_closest_marker("gpus")
    needed = marker.args[0] if marker else 1
    found = len(list_gpus())
    if found < needed:
        pytest.skip(f"needs {needed} NVIDIA GPUs, and {found} are to be seen: see docs/gpu.md")


@pytest.fixture(scope="session")
def framework(request):
    name = request.config.getoption("--framework", default=None)
    if name is None:
        pytest.skip("needs a framework: name the one in this Python with --framework")
    return name


@pytest.fixture(scope="session")
def device(request):
    return request.config.getoption("--device", default=CUDA)


@pytest.fixture(scope="session")
def pythons(request):
    """Return the Python of each framework that `--python` names."""
    pairs = (pair.partition("=") for pair in request.config.getoption("--python", default=[]))
    return {name: Path(path) for name, _, path in pairs}


@pytest.fixture
def hold(record_property):
    """Return a function that writes a measured value into the report, then asserts its bounds."""

    def hold(what, value, unit="", least=None, most=None):
        words = [f">= {least:g}"] if least is not None else []
        words += [f"<= {most:g}"] if most is not None else []
        measured = {"what": what, "value": float(value), "unit": unit, "bound": ", ".join(words)}
        record_property(MEASURED, measured)
        # written so that NaN fails every bound
        assert least is None or value >= least, f"{what}: {value:g} {unit}, not >= {least:g}"
        assert most is None or value <= most, f"{what}: {value:g} {unit}, not <= {most:g}"

    return hold
