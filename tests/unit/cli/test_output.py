"""How the commands print: as wide as the terminal, or 200 columns into a pipe; any text."""

import contextlib
import io
import os
import pty
import subprocess
import sys

import pytest
from builders import IMPORT_DIR

from dlperf_slurm.cli.output import make_console
from dlperf_slurm.cli.streams import escape_unencodable

PRINT_WIDTH = "from dlperf_slurm.cli.output import make_console; print(make_console().width)"


def find_width(**variables) -> int:
    """Return the width that a process finds on a pseudo-terminal."""
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": IMPORT_DIR, **variables}
    try:
        command = [sys.executable, "-c", PRINT_WIDTH]
        subprocess.run(command, stdout=slave, env=environment, check=True)
        return int(os.read(master, 100))
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_terminal_is_as_wide_as_it_says(term):
    assert find_width(TERM=term, COLUMNS="57") == 57


def test_text_that_the_output_cannot_encode_is_escaped():
    code = (
        "from dlperf_slurm.cli.output import make_console; "
        "from dlperf_slurm.cli.streams import escape_unencodable; "
        "escape_unencodable(); make_console().print('é ≥ 表')"
    )
    environment = {**os.environ, "PYTHONPATH": IMPORT_DIR, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert (done.returncode, done.stdout) == (0, b"\xe9 \\u2265 \\u8868\n")


def test_output_that_has_no_encoding_is_left_alone():
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        escape_unencodable()
        make_console().print("表")
    assert stream.getvalue() == "表\n"


def test_pipe_has_200_columns_whatever_the_terminal():
    environment = {**os.environ, "PYTHONPATH": IMPORT_DIR, "TERM": "dumb", "COLUMNS": "57"}
    command = [sys.executable, "-c", PRINT_WIDTH]
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert int(done.stdout) == 200
