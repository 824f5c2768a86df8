"""pytest plugin: append the outcome of each check to a file as soon as it is known.

It also ends this process group if the process that started pytest is gone.
"""

import json
import os
import signal
import threading
import time
from pathlib import Path

from support.gpu_report import FAILED, LONGEST_REASON, MEASURED, NOT_RUN, PASSED, RUNNING

LOOK_SECONDS = 1.0


def pytest_addoption(parser):
    parser.addoption("--outcomes", metavar="FILE", help="append outcomes as JSON lines")


def pytest_configure(config):
    path = config.getoption("--outcomes")
    # the workers of pytest-xdist report to the process that writes
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(Path(path)))
        threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()


def end_with_parent(parent):
    """Kill this process group, children included, once its parent has ended."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.killpg(0, signal.SIGKILL)


class Outcomes:
    """Hooks that write a line when a check starts, and another one with its verdict."""

    def __init__(self, path):
        self._path = path

    def pytest_runtest_logstart(self, nodeid):
        self._write({"check": get_name(nodeid), "verdict": RUNNING})

    def pytest_runtest_logreport(self, report):
        if report.passed and report.when != "call":
            return
        reason = report.longreprtext if report.failed else ""
        if report.skipped:
            reason = report.longrepr[2].partition("Skipped: ")[2]
        verdicts = {"passed": PASSED, "failed": FAILED, "skipped": NOT_RUN}
        told = {
            "check": get_name(report.nodeid),
            "verdict": verdicts[report.outcome],
            "measured": [value for name, value in report.user_properties if name == MEASURED],
            # the end of a traceback is the most useful part
            "reason": reason[-LONGEST_REASON:].strip(),
            "seconds": report.duration,
        }
        self._write(told)

    def _write(self, told):
        with self._path.open("a", encoding="utf-8") as output:
            output.write(json.dumps(told) + "\n")


def get_name(nodeid):
    return nodeid.partition("::")[2]
