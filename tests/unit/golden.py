"""Golden files: rendered text as it was last reviewed.

After an intended change: `UPDATE_GOLDEN=1 python -m pytest tests/unit/jobs tests/unit/checks`, and
review the diff of tests/golden before the commit.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# directives that are the same in all scripts
COMMON_DIRECTIVES = ("--job-name=", "--output=", "--open-mode=")
# the commands in functions of a script
LAUNCH = re.compile(r"^(?:launch|search|script|prepare_nodes)_\w+\(\) \{\n(.*?)^\}", re.M | re.S)


def assert_is_golden(text: str, golden: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def assert_script_is_golden(script: str, golden: Path) -> None:
    """Compare a whole script with its golden file."""
    assert_is_bash(script)
    assert_is_golden(script, golden)


def assert_launches_are_golden(scripts: Mapping[str, str], golden: Path) -> None:
    """Compare directives and launch commands of scripts, by name, with one golden file."""
    for script in scripts.values():
        assert_is_bash(script)
    sections = (f"# {name}\n{extract_launch(script)}" for name, script in scripts.items())
    assert_is_golden("\n".join(sections), golden)


def extract_launch(script: str) -> str:
    """Return the directives of a script that differ between scripts, and its launch commands."""
    directives = [line[8:] for line in script.splitlines() if line.startswith("#SBATCH ")]
    lines = [line for line in directives if not line.startswith(COMMON_DIRECTIVES)]
    lines += [line.strip() for body in LAUNCH.findall(script) for line in body.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def assert_is_bash(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
