"""Number formats of frameworks other than PyTorch -> rows of one table, and rows of faults."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rehearsal.checks import Problems, Rank
from rehearsal.combinations import Combination
from rehearsal.compiled import NUMBERS_CHECK, Compilation
from rehearsal.report import Row, make_fault_row, make_row

# arguments by which calls of cuBLAS and cuDNN are counted
NAMED = ("type", "compute", "math", "has_tensor_cores")


def make_compiled_row(
    compilation: Compilation, answer: Mapping[str, Any], problems: Problems
) -> Row:
    """Make the row of a step that XLA compiled, or of the fault in it."""
    if compilation.fault:
        return make_fault_row(compilation.fault, compilation.name, NUMBERS_CHECK, problems)
    cells = (
        "jax",
        compilation.model,
        compilation.precision,
        f"compiled, products by {compilation.products_by}",
        join_counts(answer.get("products", {})),
        join_counts(answer.get("tensor_cores", {})),
    )
    return make_row(compilation.name, cells, problems)


def make_called_row(combination: Combination, ranks: Sequence[Rank], problems: Problems) -> Row:
    """Make the row of steps that ran with the stubs, or of their fault; [] ranks if none ran."""
    if combination.fault:
        return make_fault_row(combination.fault, combination.name, NUMBERS_CHECK, problems)
    counts: Counter[str] = Counter()
    for one in ranks[0].steps[0] if ranks else ():
        if one.kind in ("product", "convolution"):
            words = [f"{name}={one.words[name]}" for name in NAMED if name in one.words]
            counts[" ".join((one.kind, *words))] += one.count
    cells = (
        combination.framework,
        combination.model,
        combination.precision,
        "calls of a step",
        join_counts(counts),
        "-",
    )
    return make_row(combination.name, cells, problems)


def join_counts(counts: Mapping[str, int]) -> str:
    """Format counts as "52 XLA f32 HIGHEST, 1 cuDNN f32 HIGHEST", or "-" for none."""
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "-"
