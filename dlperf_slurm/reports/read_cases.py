"""A run -> its cases as a report has them, each read on one of all cores, or from the index."""

from functools import partial
from importlib import import_module
from pathlib import Path

from dlperf_slurm.files import FileProblem
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.reports.case_index import CaseIndex, decode, encode, open_index, print_repeats
from dlperf_slurm.reports.kept_repeats import decode_repeats, encode_repeats
from dlperf_slurm.reports.step_files import StepWriter, open_step_writer, print_step_file
from dlperf_slurm.results.case_summary import reduce_case
from dlperf_slurm.results.collect import WORTH_A_PROCESS, Attempts, CaseOutcomes, Outcome
from dlperf_slurm.results.processes import map_on_cores


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
        return [decode(content) for content in map_on_cores(read, cases, least)]


def _read(
    attempts: Attempts, index: CaseIndex, writer: StepWriter, folder: Path, case: PlannedCase
) -> bytes:
    texts = print_repeats(attempts, case)
    text, steps = " ".join(texts.values()), print_step_file(folder, case.case_id)
    known = index.find(case.case_id, f"{text} {steps}")
    if known is not None:
        return known
    kept = _find_kept(index, writer, folder, case, steps)
    outcomes = attempts.gather(
        case,
        [
            kept[texts[repeat]] if texts[repeat] in kept else attempts.read(case, repeat)
            for repeat in attempts.list_repeats(case)
        ],
    )
    writer.write(outcomes, folder)
    content = encode(reduce_case(outcomes))
    steps = print_step_file(folder, case.case_id)
    index.keep(case.case_id, f"{text} {steps}", content)
    index.keep(_name_repeats(case), steps, encode_repeats(texts, outcomes))
    return content


def _find_kept(
    index: CaseIndex, writer: StepWriter, folder: Path, case: PlannedCase, steps: str
) -> dict[str, Outcome]:
    """What is known of a case's repeats by their texts, where the file of its steps is the same."""
    content = index.find(_name_repeats(case), steps)
    if content is None:
        return {}
    try:
        return decode_repeats(content, writer.read_seconds(case.case_id, folder))
    except FileProblem:
        return {}


def _name_repeats(case: PlannedCase) -> str:
    """The name of a case's repeats in the index; no case has it for its id."""
    return f"repeats of {case.case_id}"
