"""All benchmarks -> benchmarks/RESULTS.md; of those that are named, their tables on the terminal.

    python benchmarks/run.py [--quick] [BENCHMARK ...]

Each benchmark runs in a separate process: one that fails or times out is listed in the tables, and
the others continue. The file is rewritten after each benchmark, and lists those still to run.
Rows that became slower than in the last RESULTS.md are printed. Figures of --quick are only for
trying, go to .venv/RESULTS-quick.md, and take at most ten minutes: benchmarks that do not fit are
listed, and have to be named to run.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from machine import describe_machine
from measuring import CHECKOUT
from results_file import list_slower, write_results
from rows import Row

HERE = Path(__file__).parent
LIMIT_SECONDS = 3600.0
QUICK_SECONDS = 600.0
NOT_YET = "it has not run yet"
MEASURE = """
import importlib, json, sys
from dataclasses import asdict
rows = importlib.import_module(sys.argv[1]).measure_rows(sys.argv[2] == "quick")
with open(sys.argv[3], "w", encoding="utf-8") as file:
    json.dump([asdict(row) for row in rows], file)
"""


def main() -> int:
    """Measure and write; return exit code 1 if a benchmark failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = list_benchmarks()
    parser.add_argument("names", nargs="*", metavar="BENCHMARK", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    options = parser.parse_args()
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    machine = describe_machine()
    path = CHECKOUT / ".venv" / "RESULTS-quick.md" if options.quick else HERE / "RESULTS.md"
    names = options.names or known
    rows: list[Row] = []
    failures = dict.fromkeys(names, NOT_YET)
    text = ""
    end = time.monotonic() + (QUICK_SECONDS if options.quick else math.inf)
    last = HERE / "RESULTS.md"
    before = last.read_text(encoding="utf-8") if last.exists() else ""
    for name in names:
        start = time.monotonic()
        measured, failure = measure(name, options.quick, min(LIMIT_SECONDS, end - start))
        rows += measured
        del failures[name]
        if failure:
            failures[name] = failure
        print(f"{name}: {failure or 'done'}, {time.monotonic() - start:.0f} s", flush=True)
        for line in list_slower(measured, before):
            print(f"  {line}", flush=True)
        text = write_results(rows, machine, failures)
        if not options.names:
            path.write_text(text, encoding="utf-8")
    print(text if options.names else f"written: {path.relative_to(CHECKOUT)}")
    return 1 if failures else 0


def list_benchmarks() -> list[str]:
    """Return the modules of this folder with a function measure_rows, in alphabetical order."""
    modules = sorted(HERE.glob("*.py"))
    return [path.stem for path in modules if "\ndef measure_rows(" in path.read_text("utf-8")]


def measure(name: str, is_quick: bool, limit_seconds: float) -> tuple[list[Row], str]:
    """Return the rows of a benchmark, and how it failed or ''."""
    if limit_seconds <= 0:
        return [], f"not begun within {QUICK_SECONDS:.0f} s"
    size = "quick" if is_quick else "full"
    env = {**os.environ, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{HERE}"}
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder, "rows.json"), Path(folder, "log")
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", MEASURE, name, size, str(path)],
                cwd=CHECKOUT,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(limit_seconds)
            except subprocess.TimeoutExpired:
                return [], f"not done after {limit_seconds:.0f} s"
            finally:
                end_group(process)
        if code or not path.exists():
            said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return [], f"exit code {code}: {said[-1][:300] if said else 'it said nothing'}"
        rows = [Row(**fields) for fields in json.loads(path.read_text(encoding="utf-8"))]
    own = f"python benchmarks/{name}.py"
    return [replace(row, command=row.command or own) for row in rows], ""


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill the processes that a benchmark has left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
