"""Ctrl-C at any moment of a command ends it with one line."""

import os
import signal
import subprocess
import sys
import time

import pytest
from builders import IMPORT_DIR, write_matrix

pytestmark = pytest.mark.integration

# as the console script, ready once an interrupt is the tool's own: before that it is Python's
TOOL = """
import signal, sys
from dlperf_slurm.__main__ import main
set_handler = signal.signal
def tell(number, handler):
    set_handler(number, handler)
    if number == signal.SIGALRM:
        print("ready", flush=True)
signal.signal = tell
sys.exit(main())
"""
LINE = "dlperf-slurm: interrupted; what was submitted runs on"


def start(*arguments, code=TOOL):
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": IMPORT_DIR},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell has what it starts with `&` ignore interrupts
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == "ready\n"
    return process


def interrupt(process):
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors.split("\n")


@pytest.mark.parametrize("delay", [0.0, 0.3])
def test_interrupt_prints_one_line(delay):
    process = start("plan", str(write_matrix()), "--site", "local")
    time.sleep(delay)
    code, lines = interrupt(process)
    # a fast machine may have the answer by then
    assert (code, lines) in [(130, ["", LINE, ""]), (0, [""])]


def test_interrupt_that_a_library_made_another_error_of_is_one():
    code = TOOL.replace("sys.exit", """
import signal, dlperf_slurm.cli
def run():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        raise RuntimeError("Error calling __set_name__") from error
dlperf_slurm.cli.main = run
sys.exit""")  # fmt: skip
    process = start(code=code)
    assert (process.communicate(timeout=60)[1], process.returncode) == (f"\n{LINE}\n", 130)


def test_interrupt_in_a_destructor_is_not_lost():
    code = TOOL.replace("sys.exit", """
import signal, time, dlperf_slurm.cli
class Dies:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def run():
    Dies()
    time.sleep(60)
dlperf_slurm.cli.main = run
sys.exit""")  # fmt: skip
    process = start(code=code)
    assert (process.communicate(timeout=50)[1], process.returncode) == (f"\n{LINE}\n", 130)


def test_who_ignores_interrupts_goes_on():
    ignore = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    code = f"import signal; {ignore}; print('ready', flush=True)\n{TOOL}"
    assert interrupt(start("plan", str(write_matrix()), "--site", "local", code=code)) == (0, [""])
