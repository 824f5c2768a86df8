"""Golden files: rendered text as it was when somebody last read it.

After a change that is meant: `UPDATE_GOLDEN=1 python -m pytest tests/unit/jobs`, and read the
difference in tests/golden before it is committed.
"""

import os
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def assert_is_golden(text: str, golden: Path) -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
