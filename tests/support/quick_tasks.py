"""A fake framework environment whose array tasks cost almost nothing, for runs of thousands.

Job script, srun and files are real; the worker is a few lines of bash that write a valid record in
place of a rank. The real worker concludes array tasks without a record.
"""

import dataclasses
import json
import shlex
import sys
from pathlib import Path

from dlperf_slurm.contract.json_files import SCHEMA_VERSION
from dlperf_slurm.contract.record import RECORD_FILE
from support.attempts import CASE
from support.cases import vary
from support.fake_environment import make_record

# python -m dlperf_slurm.worker run|conclude FOLDER ...
PYTHON = """\
#!/bin/bash
record=$4/{record}
case $3 in
  run)
    echo "rank $SLURM_PROCID" >> "$4/starts" || exit 1
    sleep {seconds}
    # the steps are over
    {{ cat {head} && sed 's/"schema_version": [0-9]*, //' "$4/case.json" && cat {tail}; }} \
      > "$record.partial" && mv "$record.partial" "$record"
    ;;
  conclude) [ -e "$record" ] || exec {python} "$@" ;;
  *) exec {python} "$@" ;;
esac
"""


def make_quick_venv(folder: Path, seconds: float) -> Path:
    """Make a fake virtual environment whose array tasks take this many seconds to measure."""
    bin_dir = folder / "bin"
    bin_dir.mkdir(parents=True)
    head, tail = (folder / name for name in ("head", "tail"))
    before, after = _make_record().split('"the case"')
    head.write_text(before, encoding="utf-8")
    tail.write_text(after, encoding="utf-8")
    python = bin_dir / "python"
    python.write_text(
        PYTHON.format(
            record=RECORD_FILE,
            seconds=seconds,
            head=shlex.quote(str(head)),
            tail=shlex.quote(str(tail)),
            python=shlex.quote(sys.executable),
        ),
        encoding="utf-8",
    )
    python.chmod(0o755)
    return folder


def _make_record() -> str:
    """Return the record of a successful run on one device, with a placeholder for its case."""
    record = make_record(vary(CASE, model="resnet50", model_parameters={}, devices_per_node=1))
    data = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(record), "case": "the case"}
    return json.dumps(data, indent=1, sort_keys=True) + "\n"
