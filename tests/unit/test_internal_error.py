"""An error that no command handles: a file for the report, and no traceback on the terminal."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

from builders import IMPORT_DIR

TOOL = """
import sys
def fail():
    raise KeyError("a\\x1bb" * 1000)
import dlperf_slurm.cli
dlperf_slurm.cli._run_command = lambda words: fail()
from dlperf_slurm.__main__ import main
sys.exit(main())
"""


def test_internal_error_ends_with_a_file_to_report(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TOOL, "plan", "--set", "env.TOKEN=s3cret"],
        env={**os.environ, "PYTHONPATH": IMPORT_DIR, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 70
    assert done.stderr.startswith("dlperf-slurm: internal error: ")
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr
    path = Path(re.search(r"report this error and attach (\S+)", done.stderr)[1])
    text = path.read_text(encoding="utf-8")
    assert "Traceback" in text
    assert re.match(r"dlperf_slurm \S+, Python \S+, plan\n", text)
    assert "s3cret" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
