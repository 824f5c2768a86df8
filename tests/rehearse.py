"""PyTorch's GPU paths without a GPU: its CUDA build over stand-ins for NVIDIA's libraries.

    python tests/rehearse.py [--only TEXT]

Runs PyTorch's steps of all models in each precision, on two kinds of GPUs, with one and two ranks,
and checks their waits, copies, kernel launches, number formats and collectives; then searches for
the largest batch, up to the memory limit; then repeats this with injected faults, each of which a
check must find. Kernels are counted by name and not run. For TensorFlow 2, and for JAX, which XLA
compiles for an absent H100, the number formats are checked. The environments are those of `env
create --cuda`. The exit code is 0 if all checks pass; the report is in .venv/rehearsal. With
--only, runs one framework (jax, pytorch, tensorflow2), or PyTorch's rows whose name contains that
text, without faults.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rehearsal.build import LIBRARIES, LIBRARIES_12, BuildError, list_versions
from rehearsal.checks import Problems, find_problems, read_rank
from rehearsal.combinations import (
    CAPABILITIES,
    SEARCH_MEMORY_MIB,
    Combination,
    list_combinations,
    list_tensorflow,
)
from rehearsal.compiled import find_compiled_problems, list_broken, list_compilations
from rehearsal.other_frameworks import make_called_row, make_compiled_row
from rehearsal.report import (
    CAUGHT,
    Found,
    Row,
    list_rejected,
    make_fault_row,
    make_markdown,
    make_row,
    make_step_row,
    make_summary,
)
from rehearsal.self_checks import SELF_CHECKS, TENSORFLOW_FAULTS
from rehearsal.stage import CHECKOUT, PROGRAMS, VARIABLES, Stage, ask, find_environment

FOLDER = CHECKOUT / ".venv" / "rehearsal"
PYTORCH = "pytorch"
# name of the check that a rank that ends early fails
RUNS = "runs"
SEARCH = "search"
SEARCHES = (("bert", 1), ("resnet50", 2))
# makes the stub's allocator fail with an error that is not out of memory
HIDE_FULL_MEMORY = {"REHEARSAL_HIDES_FULL_MEMORY": "1"}


def main() -> int:
    """Rehearse, print the table and write the report; return 0 if all checks pass."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="a framework, or rows by name")
    only = parser.parse_args().only
    started = time.monotonic()
    chosen = [PYTORCH, *OTHERS] if not only else [only if only in OTHERS else PYTORCH]
    found = Found()
    try:
        for framework in chosen:
            found.add_versions(framework, list_versions(find_environment(framework)))
        FOLDER.mkdir(parents=True, exist_ok=True)
        for framework in chosen:
            if framework == PYTORCH:
                rehearse_pytorch(found, "" if only == PYTORCH else only)
            else:
                OTHERS[framework](found)
    except BuildError as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return 1
    found.facts["seconds"] = f"{time.monotonic() - started:.0f}"
    report = FOLDER / "report.md"
    report.write_text(make_markdown(found), encoding="utf-8")
    if found.rows:
        print(make_summary(found.rows))
    print(*list_rejected(found.every), sep="\n")
    caught = sum(row.verdict == CAUGHT for row in found.faults)
    told = (
        f"{caught} of {len(found.faults)} faults caught" if found.faults else "no fault was put in"
    )
    print(f"{told}; report: {report}")
    return 0 if found.every and all(row.is_sound for row in found.every) else 1


def rehearse_pytorch(found: Found, only: str) -> None:
    """Run PyTorch's steps and searches whose name contains this text; if '', all and the faults."""
    stage = Stage(PYTORCH, LIBRARIES, FOLDER)
    found.rows.extend(rehearse(stage, [one for one in list_combinations() if only in one.name]))
    searches = [one for one in SEARCHES if only in " ".join(map(str, one))]
    found.searches.extend(search(stage, *one) for one in searches)
    if not only:
        found.faults.extend([*rehearse_faults(stage), fail_search(stage)])


def rehearse_tensorflow(found: Found) -> None:
    """Check the calls of cuBLAS and cuDNN by TensorFlow 2, in graph mode."""
    stage = Stage("tensorflow2", LIBRARIES_12, FOLDER)
    combinations = [*list_tensorflow(), *TENSORFLOW_FAULTS]
    answers = stage.observe(combinations, FOLDER / "tensorflow2.log")
    for combination, answer in zip(combinations, answers):
        problems = judge_answer(combination, answer)
        ranks = [read_rank(told) for told in answer.get("ranks", [])]
        found.add_numbers(make_called_row(combination, ranks, problems))


def rehearse_jax(found: Found) -> None:
    """Check the products in JAX's steps, which XLA compiles for an absent H100."""
    asked = [*list_compilations(), *list_broken()]
    command = [find_environment("jax") / "bin" / "python", PROGRAMS / "compile_jax.py"]
    answers = ask(command, {**os.environ, **VARIABLES}, asked, FOLDER / "jax.log")
    for compilation, answer in zip(asked, answers):
        error = {RUNS: [answer["error"]]} if "error" in answer else None
        problems = error or find_compiled_problems(compilation, answer)
        found.add_numbers(make_compiled_row(compilation, answer, problems))


OTHERS: dict[str, Callable[[Found], None]] = {
    "tensorflow2": rehearse_tensorflow,
    "jax": rehearse_jax,
}


def rehearse(stage: Stage, combinations: Sequence[Combination]) -> list[Row]:
    """Return the rows of all combinations, in order; the kinds of GPUs run in parallel."""

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
    row = make_step_row(combination, ranks, problems)
    print(f"{row.name}: {row.verdict}", flush=True)
    return row


def judge_answer(combination: Combination, answer: dict[str, Any]) -> Problems:
    """Return the problems of an answer, by check."""
    if "error" in answer:
        return {RUNS: [answer["error"]]}
    return find_problems(combination, [read_rank(told) for told in answer["ranks"]])


def rehearse_faults(stage: Stage) -> Iterator[Row]:
    """Yield a row for each injected fault, all on the same kind of GPU."""
    pairs = [(check, one) for check, faults in SELF_CHECKS.items() for one in faults]
    answers = stage.observe([one for _, one in pairs], FOLDER / "faults.log")
    for (check, combination), answer in zip(pairs, answers):
        problems = judge_answer(combination, answer)
        row = make_fault_row(combination.fault, combination.name, check, problems)
        print(f"{row.name}: {row.verdict}", flush=True)
        yield row


def search(stage: Stage, model: str, ranks: int) -> Row:
    """Run a search for the largest batch, and return its row."""
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
    row = make_row(f"search {name}", cells, {SEARCH: problems} if problems else {})
    print(f"{row.name}: {row.verdict}", flush=True)
    return row


def judge_search(answer: dict[str, Any]) -> Iterator[str]:
    """Yield problems, unless the batch found fits and the next larger one ran out of memory."""
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
    """Run a search on a GPU that hides that its memory is full, which must fail."""
    model, ranks = SEARCHES[0]
    problems = list(judge_search(stage.search(model, ranks, HIDE_FULL_MEMORY)))
    fault = "hide that memory is full"
    return make_fault_row(fault, f"search {model} amp-fp16", SEARCH, {SEARCH: problems})


if __name__ == "__main__":
    sys.exit(main())
