"""`submit --profile` -> which cases are profiled, and how a profiler wraps a rank's command."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dlperf_slurm.contract.case import FOLDER_MARK
from dlperf_slurm.errors import InputError
from dlperf_slurm.plain_text import matches_pattern

if TYPE_CHECKING:
    # reports, which need the names of the profilers, start faster without pydantic
    from dlperf_slurm.matrix.expand import Expansion, MatrixCase

TORCH = "torch"
# the repeat that runs a second time, with the profiler
PROFILED_REPEAT = 1
# the words before a rank's command; PyTorch's profiler runs within the ranks
PROFILERS: Mapping[str, Sequence[str]] = {
    "nsys": (
        *("nsys", "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--force-overwrite=true"),
        f"--output={FOLDER_MARK}/%h-%p",
    ),
    TORCH: (),
    "rocprof": (
        *("rocprofv3", "--runtime-trace", "--output-format", "pftrace"),
        *("--output-directory", FOLDER_MARK, "--"),
    ),
}
STARTER_PREFIX = "profile_"


def mark_profiled(expansion: "Expansion", tool: str, patterns: Sequence[str]) -> "Expansion":
    """Return the expansion with the profiler in the cases that match, or in all without patterns.

    `tool` is a key of PROFILERS ("nsys", "torch", "rocprof"); `patterns` are for case ids, as in
    `matches_pattern`. Raises InputError if a pattern matches no case, or a case cannot be profiled.
    """
    for pattern in patterns:
        if not any(matches_pattern(case.case_id, [pattern]) for case in expansion.cases):
            known = ", ".join(case.case_id for case in expansion.cases)
            raise InputError(f"--only {pattern}: no case of the matrix matches; known: {known}")
    chosen = {
        case.case_id: case
        for case in expansion.cases
        if not patterns or matches_pattern(case.case_id, patterns)
    }
    problems = [
        f"{case_id}: {problem}"
        for case_id, case in chosen.items()
        if (problem := _find_problem(case, tool))
    ]
    if problems:
        raise InputError(
            f"--profile {tool}: cannot profile these cases (choose others with --only PATTERN):\n  "
            + "\n  ".join(problems)
        )
    cases = (
        dataclasses.replace(case, profiler=tool) if case.case_id in chosen else case
        for case in expansion.cases
    )
    return dataclasses.replace(expansion, cases=tuple(cases))


def _find_problem(case: "MatrixCase", tool: str) -> str:
    """Return why a case cannot be profiled with `tool`, such as "nsys"; "" if it can."""
    if case.script_table is not None:
        return "is an external script"
    if case.axes.has_batch_search:
        return "searches for the largest batch size; set a number instead"
    if case.training.epochs:
        return "trains to accuracy"
    if tool == TORCH and case.axes.framework != "pytorch":
        return f"uses {case.axes.framework}, but torch.profiler works only with pytorch"
    return ""
