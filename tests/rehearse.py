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
from rehearsal.checks import find_problems, read_rank
from rehearsal.combinations import (
    CAPABILITIES,
    SEARCH_MEMORY_MIB,
    Combination,
    list_combinations,
    list_tensorflow,
)
from rehearsal.compiled import (
    NUMBERS_CHECK,
    Compilation,
    find_compiled_problems,
    list_broken,
    list_compilations,
)
from rehearsal.report import (
    CAUGHT,
    MISSED,
    Row,
    describe_step,
    join_counts,
    list_rejected,
    make_markdown,
    make_row,
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
    """Rehearse, print the verdicts and write the report; return 0 if all checks pass."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="a framework, or rows by name")
    only = parser.parse_args().only
    started = time.monotonic()
    chosen = [PYTORCH, *OTHERS] if not only else [only if only in OTHERS else PYTORCH]
    facts: dict[str, str] = {}
    rows: list[Row] = []
    try:
        for framework in chosen:
            versions = list_versions(find_environment(framework))
            facts[framework] = ", ".join(f"{name} {version}" for name, version in versions.items())
        FOLDER.mkdir(parents=True, exist_ok=True)
        for framework in chosen:
            rows += OTHERS.get(framework, lambda: rehearse_pytorch(only))()
    except BuildError as error:
        print(f"rehearse: {error}", file=sys.stderr)
        return 1
    facts["seconds"] = f"{time.monotonic() - started:.0f}"
    report = FOLDER / "report.md"
    report.write_text(make_markdown(rows, facts), encoding="utf-8")
    print(*list_rejected(rows), sep="\n")
    faults = [row.verdict for row in rows if row.verdict in (CAUGHT, MISSED)]
    told = f"{faults.count(CAUGHT)} of {len(faults)} faults caught" if faults else "no fault put in"
    print(f"{told}; report: {report}")
    return 0 if rows and all(row.is_sound for row in rows) else 1


def rehearse_pytorch(only: str) -> Iterator[Row]:
    """Run PyTorch's steps and searches whose name contains this text; if '', all and the faults."""
    only = "" if only == PYTORCH else only
    stage = Stage(PYTORCH, LIBRARIES, FOLDER)
    yield from rehearse(stage, [one for one in list_combinations() if only in one.name])
    for model, ranks in SEARCHES:
        if only in f"{model} {ranks}":
            yield search(stage, model, ranks)
    if not only:
        pairs = [(check, one) for check, faults in SELF_CHECKS.items() for one in faults]
        answers = stage.observe([one for _, one in pairs], FOLDER / "faults.log")
        for (check, combination), answer in zip(pairs, answers):
            yield judge(combination, answer, check)
        yield search(stage, *SEARCHES[0], "hide that memory is full")


def rehearse_tensorflow() -> Iterator[Row]:
    """Check the calls of cuBLAS and cuDNN by TensorFlow 2, in graph mode."""
    stage = Stage("tensorflow2", LIBRARIES_12, FOLDER)
    combinations = [*list_tensorflow(), *TENSORFLOW_FAULTS]
    answers = stage.observe(combinations, FOLDER / "tensorflow2.log")
    yield from map(judge, combinations, answers)


def rehearse_jax() -> Iterator[Row]:
    """Check the products in JAX's steps, which XLA compiles for an absent H100."""
    asked = [*list_compilations(), *list_broken()]
    command = [find_environment("jax") / "bin" / "python", PROGRAMS / "compile_jax.py"]
    answers = ask(command, {**os.environ, **VARIABLES}, asked, FOLDER / "jax.log")
    yield from map(judge_compiled, asked, answers)


OTHERS: dict[str, Callable[[], Iterator[Row]]] = {
    "tensorflow2": rehearse_tensorflow,
    "jax": rehearse_jax,
}


def rehearse(stage: Stage, combinations: Sequence[Combination]) -> list[Row]:
    """Return the rows of all combinations, in order; the kinds of GPUs run in parallel."""

    def rehearse_kind(capability: int) -> list[Row]:
        chosen = [one for one in combinations if one.capability == capability]
        if not chosen:
            return []
        return list(map(judge, chosen, stage.observe(chosen, FOLDER / f"steps-{capability}.log")))

    with ThreadPoolExecutor(len(CAPABILITIES)) as pool:
        return [row for rows in pool.map(rehearse_kind, CAPABILITIES) for row in rows]


def judge(combination: Combination, answer: dict[str, Any], check: str = NUMBERS_CHECK) -> Row:
    """Make the row of steps that ran with the stubs; `check` must find their fault."""
    ranks = [read_rank(told) for told in answer.get("ranks", [])]
    error = {RUNS: [answer["error"]]} if "error" in answer else None
    problems = error or find_problems(combination, ranks)
    row = make_row(combination.name, describe_step(ranks), problems, combination.fault, check)
    return show(row)


def show(row: Row) -> Row:
    print(f"{row.name}: {row.verdict}", flush=True)
    return row


def judge_compiled(compilation: Compilation, answer: dict[str, Any]) -> Row:
    """Make the row of a step that XLA compiled, or of the fault in it."""
    error = {RUNS: [answer["error"]]} if "error" in answer else None
    problems = error or find_compiled_problems(compilation, answer)
    products, cores = (answer.get(name, {}) for name in ("products", "tensor_cores"))
    seen = f"{join_counts(products)}; tensor cores: {join_counts(cores)}"
    return show(make_row(compilation.name, seen, problems, compilation.fault, NUMBERS_CHECK))


def search(stage: Stage, model: str, ranks: int, fault: str = "") -> Row:
    """Search for the largest batch; with a fault, the GPU hides that its memory is full."""
    answer = stage.search(model, ranks, HIDE_FULL_MEMORY if fault else {})
    problems = list(judge_search(answer))
    trials = ", ".join(
        f"{size} {'full' if full else 'fits'}" for size, full in answer.get("trials", [])
    )
    peak = answer.get("peak_memory_bytes", 0) / 2**20
    seen = f"{SEARCH_MEMORY_MIB} MiB: {trials}; {answer.get('batch_size', '-')}, {peak:.0f} MiB"
    name = f"search {model} amp-fp16, {ranks} rank{'s' * (ranks > 1)}"
    return show(make_row(name, seen, {SEARCH: problems} if problems else {}, fault, SEARCH))


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


if __name__ == "__main__":
    sys.exit(main())
