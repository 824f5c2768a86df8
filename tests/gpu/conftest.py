"""Checks on real GPUs; if there are too few they are skipped, with the reason for the report.

`tests/run_on_gpus.py` runs them, in the environments that `env create --cuda` makes.
"""

import json

import pytest
from support.gpu_machine import list_gpus
from support.gpu_report import MEASURED


def pytest_addoption(parser):
    parser.addoption("--framework", help="whose environment this Python is")


def pytest_configure(config):
    config.addinivalue_line("markers", "gpus(count): needs so many NVIDIA GPUs, not one")


def pytest_runtest_setup(item):
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


@pytest.fixture
def hold(record_property):
    """Return a function that writes a measured value into the report, then asserts its bounds."""

    def hold(what, value, unit="", least=None, most=None):
        words = [f">= {least:g}"] if least is not None else []
        words += [f"<= {most:g}"] if most is not None else []
        measured = {"what": what, "value": float(value), "unit": unit, "bound": ", ".join(words)}
        record_property(MEASURED, json.dumps(measured))
        # written so that NaN fails every bound
        assert least is None or value >= least, f"{what}: {value:g} {unit}, not >= {least:g}"
        assert most is None or value <= most, f"{what}: {value:g} {unit}, not <= {most:g}"

    return hold
