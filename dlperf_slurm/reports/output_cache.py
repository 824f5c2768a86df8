"""A report -> what it printed, kept until the run, its report folder or the tool changes."""

from collections.abc import Sequence
from typing import NamedTuple, Optional

from dlperf_slurm.config.folders import hash_path
from dlperf_slurm.contract.parity import PROOFS_FILE
from dlperf_slurm.errors import CasesFailedError, DlperfError, UnhealthyNodesError
from dlperf_slurm.jobs.run_directory import Run
from dlperf_slurm.jobs.run_files import FileState, check_files, have_changed, list_tree
from dlperf_slurm.results.cache import evict_entries, fingerprint_code, load_entry, store_entry

# the folder of the cache, and the most outputs in it
OUTPUTS = "outputs"
MOST_OUTPUTS = 100
_ERRORS = {kind.__name__: kind for kind in (CasesFailedError, UnhealthyNodesError)}


class Output(NamedTuple):
    """What a report printed, and the error that it raised after all was written, or None."""

    text: str
    error: Optional[DlperfError]


def load_output(run: Run, choices: Sequence[object]) -> Optional[Output]:
    """Return the output that an equal report printed before; None if files or code changed.

    `choices` are the options of the report.
    """
    kept = load_entry(OUTPUTS, hash_path(run.path), _describe(run, choices))
    if kept is None:
        return None
    text, kind, message, found, written = kept
    if have_changed(run.path, found) or have_changed(run.report_dir.parent, written):
        return None
    return Output(text, _ERRORS[kind](message) if kind else None)


def store_output(
    run: Run, choices: Sequence[object], found: Sequence[FileState], output: Output
) -> None:
    """Store what a report printed, for `load_output`; `choices` are its options.

    `found` are the run's files as they were before the report read them.
    """
    root, error = run.report_dir.parent, output.error
    written = check_files(root, list_tree(root, run.report_dir.name))
    kind = "" if error is None else type(error).__name__
    value = (output.text, kind, str(error), found, written)
    store_entry(OUTPUTS, hash_path(run.path), _describe(run, choices), value)
    evict_entries(OUTPUTS, MOST_OUTPUTS)


def _describe(run: Run, choices: Sequence[object]) -> tuple[object, ...]:
    """Return the part of a cache key that does not depend on files of the run.

    These are the tool's code, the run's path and permissions, proofs beside the run, and `choices`.
    """
    # `parity` writes its file once, and a report names it
    proofs = sorted(map(str, run.path.parent.glob(f"*/{PROOFS_FILE}")))
    # new files of a report have the permissions of the run
    return fingerprint_code(), str(run.path), run.path.stat().st_mode, *proofs, *choices
