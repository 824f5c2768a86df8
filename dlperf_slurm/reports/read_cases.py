"""A run -> its cases as a report has them, each read on one of all cores, or from the index."""

from functools import partial
from importlib import import_module
from pathlib import Path

from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.reports.case_index import (
    CaseIndex,
    decode_case,
    encode_case,
    open_index,
    print_case,
)
from dlperf_slurm.reports.step_files import StepWriter, open_step_writer, print_step_file
from dlperf_slurm.results.collect import WORTH_A_PROCESS, Attempts, CaseOutcomes
from dlperf_slurm.results.processes import map_on_cores
from dlperf_slurm.results.reduced import reduce_case


def read_cases(attempts: Attempts, folder: Path) -> list[CaseOutcomes]:
    """The reduced cases of a run, in the order of its plan; their steps are in `folder` afterwards.

    No process has more than one case in its memory. Raises FileProblem for steps that cannot be
    written.
    """
    cases = attempts.run.manifest.cases
    repeats = sum(len(attempts.list_repeats(case)) for case in cases)
    least = max(1, WORTH_A_PROCESS * len(cases) // max(1, repeats))
    # before there are copies of this process, each of which would do it
    for name in ("duckdb", "pandas"):
        import_module(name)
    with open_step_writer() as writer:
        read = partial(_read, attempts, open_index(attempts.run), writer, folder)
        return [decode_case(content) for content in map_on_cores(read, cases, least)]


def _read(
    attempts: Attempts, index: CaseIndex, writer: StepWriter, folder: Path, case: PlannedCase
) -> bytes:
    files = print_case(attempts, case)
    known = index.find(case.case_id, _add_steps(files, folder, case))
    if known is not None:
        return known
    outcomes = attempts.read_case(case)
    writer.write(outcomes, folder)
    content = encode_case(reduce_case(outcomes))
    index.keep(case.case_id, _add_steps(files, folder, case), content)
    return content


def _add_steps(files: str, folder: Path, case: PlannedCase) -> str:
    return f"{files} {print_step_file(folder, case.case_id)}"
