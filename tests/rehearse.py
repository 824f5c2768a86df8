"""PyTorch's GPU paths without a GPU: its CUDA build over stand-ins for NVIDIA's libraries.

    python tests/rehearse.py [--only TEXT]

Runs steps of both models in each precision, on GPUs of two kinds, by one and two ranks, and checks
what they wait for, copy, launch, compute with and send; then searches for the largest batch, which
memory ends; then the same with faults put in on purpose, each of which a check must find. Kernels
are counted by name and not run. The environment is that of `env create pytorch --cuda`. The exit
code is 0 where all is as it must be; the report lies in .venv/rehearsal. With --only, the rows
whose name has that text, without faults.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rehearsal.build import BuildError, build, build_nvml, list_versions
from rehearsal.checks import find_problems, read_rank
from rehearsal.combinations import CAPABILITIES, RANKS, Combination, list_combinations
from rehearsal.report import (
    CAUGHT,
    FAILED,
    MISSED,
    OK,
    Row,
    list_rejected,
    make_fault_row,
    make_markdown,
    make_row,
    make_summary,
)
from rehearsal.self_checks import SELF_CHECKS

from dlperf_slurm.config.folders import CUDA, find_managed_environment, name_environment

CHECKOUT = Path(__file__).resolve().parents[1]
PROGRAMS = CHECKOUT / "tests" / "rehearsal"
FOLDER = CHECKOUT / ".venv" / "rehearsal"
# what a rank that ends early is told by
RUNS = "runs"
SEARCHES = (("bert", 1), ("resnet50", 2))
SEARCH_MEMORY_MIB = 2500
# the stand-in's allocator then fails with another error than one of memory
HIDE_FULL_MEMORY = {"REHEARSAL_HIDES_FULL_MEMORY": "1"}


class Stage:
    """The environment's Python over the stand-ins."""

    def __init__(self, environment: Path, libraries: Sequence[Path]) -> None:
        self._python = environment / "bin" / "python"
        self._variables = {
            **os.environ,
            "PATH": f"{environment / 'bin'}:{os.environ.get('PATH', '')}",
            "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}",
            "LD_PRELOAD": ":".join(map(str, libraries)),
            # where pynvml and torch look for NVML
            "LD_LIBRARY_PATH": str(libraries[0].parent),
            "REHEARSAL_DEVICES": str(max(RANKS)),
            "OMP_NUM_THREADS": "1",
        }
        self._variables.pop("CUDA_VISIBLE_DEVICES", None)

    def observe(self, combinations: Sequence[Combination], log: Path) -> Iterator[dict[str, Any]]:
        """What each of these, on GPUs of one kind, asked for; one after the other."""
        variables = {"REHEARSAL_CAPABILITY": str(combinations[0].capability)}
        lines = "".join(f"{json.dumps(asdict(one))}\n" for one in combinations)
        with log.open("wb") as err, tempfile.TemporaryFile() as asked:
            asked.write(lines.encode())
            asked.seek(0)
            with subprocess.Popen(
                [self._python, PROGRAMS / "observe.py"],
                env={**self._variables, **variables},
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=err,
            ) as process:
                for _ in combinations:
                    line = process.stdout.readline() if process.stdout else b""
                    said = f"observe.py ended: see {log}"
                    yield json.loads(line) if line else {"error": said}

    def search(self, model: str, ranks: int, variables: dict[str, str]) -> dict[str, Any]:
        """How a search for the largest batch ended."""
        memory = {"REHEARSAL_MEMORY_MIB": str(SEARCH_MEMORY_MIB)}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [self._python, PROGRAMS / "search.py", model, str(ranks), folder],
                env={**self._variables, **memory, **variables},
                capture_output=True,
                text=True,
            )
        if done.returncode != 0:
            return {"error": done.stderr[-2000:]}
        return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Rehearse, print the table and write the report; 0 if all is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has it")
    options = parser.parse_args()
    started = time.monotonic()
    environment = find_managed_environment(name_environment("pytorch", CUDA))
    try:
        libraries = build(environment, FOLDER / "libraries")
        build_nvml(CHECKOUT / "tests" / "support" / "nvml_library.c", FOLDER / "libraries")
    except BuildError as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return 1
    stage = Stage(environment, libraries)
    combinations = [one for one in list_combinations() if options.only in one.name]
    rows = rehearse(stage, combinations)
    searches = [search(stage, *one) for one in SEARCHES if options.only in " ".join(map(str, one))]
    faults = [*rehearse_faults(stage), fail_search(stage)] if not options.only else []
    facts = {**list_versions(environment), "seconds": f"{time.monotonic() - started:.0f}"}
    report = FOLDER / "report.md"
    report.write_text(make_markdown(facts, rows, searches, faults), encoding="utf-8")
    every = [*rows, *searches, *faults]
    print(make_summary(rows))
    print(*list_rejected(every), sep="\n")
    caught = sum(row.verdict == CAUGHT for row in faults)
    told = "no faults were put in" if options.only else f"{caught} of {len(faults)} faults caught"
    print(f"{told}; report: {report}")
    return 0 if every and all(row.is_sound for row in every) else 1


def rehearse(stage: Stage, combinations: Sequence[Combination]) -> list[Row]:
    """The rows of all combinations, in their order; GPUs of each kind beside each other."""

    def rehearse_kind(capability: int) -> list[Row]:
        chosen = [one for one in combinations if one.capability == capability]
        if not chosen:
            return []
        answers = stage.observe(chosen, FOLDER / f"steps-{capability}.log")
        return [judge(*pair) for pair in zip(chosen, answers)]

    with ThreadPoolExecutor(len(CAPABILITIES)) as pool:
        return [row for rows in pool.map(rehearse_kind, CAPABILITIES) for row in rows]


def judge(combination: Combination, answer: dict[str, Any]) -> Row:
    problems = judge_answer(combination, answer)
    ranks = [read_rank(told) for told in answer.get("ranks", [])]
    row = make_row(combination, ranks, problems)
    print(f"{row.name}: {row.verdict}", flush=True)
    return row


def judge_answer(combination: Combination, answer: dict[str, Any]) -> dict[str, list[str]]:
    """What is wrong, by check."""
    if "error" in answer:
        return {RUNS: [answer["error"]]}
    return find_problems(combination, [read_rank(told) for told in answer["ranks"]])


def rehearse_faults(stage: Stage) -> Iterator[Row]:
    """A row for each fault that was put in, all of them on GPUs of one kind."""
    pairs = [(check, one) for check, faults in SELF_CHECKS.items() for one in faults]
    answers = stage.observe([one for _, one in pairs], FOLDER / "faults.log")
    for (check, combination), answer in zip(pairs, answers):
        row = make_fault_row(combination, check, judge_answer(combination, answer))
        print(f"{row.name}: {row.verdict}", flush=True)
        yield row


def search(stage: Stage, model: str, ranks: int) -> Row:
    """The row of a search for the largest batch."""
    answer = stage.search(model, ranks, {})
    name = f"{model} amp-fp16, {ranks} rank{'s' * (ranks > 1)}"
    problems = list(judge_search(answer))
    trials = ", ".join(
        f"{size} {'full' if full else 'fits'}" for size, full in answer.get("trials", [])
    )
    cells = (
        name,
        f"{SEARCH_MEMORY_MIB} MiB",
        trials,
        str(answer.get("batch_size", "-")),
        f"{answer.get('peak_memory_bytes', 0) / 2**20:.0f} MiB",
    )
    row = Row(
        f"search {name}",
        cells,
        FAILED if problems else OK,
        {"search": problems} if problems else {},
    )
    print(f"{row.name}: {row.verdict}", flush=True)
    return row


def judge_search(answer: dict[str, Any]) -> Iterator[str]:
    """The largest batch is one that fits, and the next larger one ran out of memory."""
    if "error" in answer or answer["status"] != "ok":
        yield answer.get("error") or f"{answer['status']}: {answer['reason']}"
        return
    fitting = [size for size, is_full in answer["trials"] if not is_full]
    full = [size for size, is_full in answer["trials"] if is_full]
    found = answer["batch_size"]
    if not fitting or found != max(fitting) or found + answer["step"] not in full:
        yield f"{found} is not the largest of {answer['trials']}"
    if not 0 < answer["peak_memory_bytes"] < SEARCH_MEMORY_MIB * 2**20:
        yield f"a peak of {answer['peak_memory_bytes']} bytes"


def fail_search(stage: Stage) -> Row:
    """A search where the GPU hides that its memory is full: it must not end well."""
    model, ranks = SEARCHES[0]
    problems = list(judge_search(stage.search(model, ranks, HIDE_FULL_MEMORY)))
    name = f"{model} amp-fp16"
    shown = problems[0] if problems else "nothing"
    cells = ("hide that memory is full", name, "search", shown)
    return Row(f"search {name}", cells, CAUGHT if problems else MISSED, {})


if __name__ == "__main__":
    sys.exit(main())
