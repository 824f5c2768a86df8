"""A run -> its results: from the user's cache, where only cases that have changed are read again.

A case is read again once any file of its repeats is another one, by size, time or inode. The cache
has nothing that the run's files do not have: it can be deleted at any time. A file that is damaged,
of another user, or of other versions of the tool, Python, pandas or NumPy counts as none.
"""

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from dlperf_slurm.config.folders import PACKAGE, evict_oldest, hash_path, make_cache_dir
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.archives import find_archive
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.attempts import print_files
from dlperf_slurm.jobs.manifest import PlannedCase
from dlperf_slurm.jobs.run_directory import CASES_FILE, Run
from dlperf_slurm.reports.step_files import StepWriter, fingerprint_step_file, open_step_writer
from dlperf_slurm.results.case_summary import (
    CaseRows,
    RunFrames,
    join_run_frames,
    make_run_frames,
    summarize_case,
)
from dlperf_slurm.results.cases import Results, analyze_frames
from dlperf_slurm.results.collect import WORTH_A_PROCESS, Attempts
from dlperf_slurm.results.columns import REPEATED_TEXT, TIME, list_values, make_array
from dlperf_slurm.results.footnotes import Remark
from dlperf_slurm.results.processes import map_on_cores
from dlperf_slurm.results.samples import INDEX
from dlperf_slurm.version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# of runs that the cache has; the one that was used longest ago goes first
MOST_RUNS = 100
_DIGEST_BYTES = 32
_FRAMES = tuple(field.name for field in fields(RunFrames))


def read_results(attempts: Attempts, folder: Path) -> Results:
    """Return the results of a run; the steps of its cases are in `folder` afterwards.

    Cases are read on several cores; no process has more than one in its memory. Raises FileProblem
    for steps that cannot be written.
    """
    planned = attempts.run.manifest.cases
    shared = fingerprint_run(attempts.run)
    files = {case.case_id: fingerprint_case(attempts, case, shared) for case in planned}

    def fingerprint() -> dict[str, str]:
        return {name: f"{own} {fingerprint_step_file(folder, name)}" for name, own in files.items()}

    prints = fingerprint()
    kept = load_results(attempts.run)
    if kept is not None and kept.prints == prints:
        return kept.decode()
    known = {} if kept is None else kept.prints
    changed = [case for case in planned if known.get(case.case_id) != prints[case.case_id]]
    frames = make_run_frames(_read_cases(attempts, folder, changed))
    if kept is not None and len(changed) < len(planned):
        unchanged = prints.keys() - {case.case_id for case in changed}
        frames = join_run_frames(kept.decode_frames(), unchanged, frames, [*prints])
    results = analyze_frames(planned, frames)
    keep_results(attempts.run, results, fingerprint())
    return results


def _read_cases(attempts: Attempts, folder: Path, cases: Sequence[PlannedCase]) -> list[CaseRows]:
    repeats = sum(len(attempts.list_repeats(case)) for case in cases)
    least = max(1, WORTH_A_PROCESS * len(cases) // max(1, repeats))
    # before there are copies of this process, each of which would do it
    for name in ("duckdb", "pandas"):
        import_module(name)
    with open_step_writer() as writer:
        return [*map_on_cores(partial(_read_case, attempts, writer, folder), cases, least)]


def _read_case(attempts: Attempts, writer: StepWriter, folder: Path, case: PlannedCase) -> CaseRows:
    outcomes = attempts.gather(
        case, [attempts.read(case, repeat) for repeat in attempts.list_repeats(case)]
    )
    writer.write(outcomes, folder)
    return summarize_case(outcomes)


# fingerprints


@cache
def fingerprint_code() -> tuple[object, ...]:
    """Fingerprint all code that figures come from.

    The newest change of a module is in it: of a checkout the version stays the same.
    """
    import numpy
    import pandas

    newest = max(path.stat().st_mtime_ns for path in PACKAGE.rglob("*.py"))
    return __version__, newest, sys.version, pandas.__version__, numpy.__version__


def fingerprint_run(run: Run) -> tuple[object, ...]:
    """Fingerprint the file of all cases, or the archive, which changes as a whole."""
    path = run.path if find_archive(run.path) is not None else run.path / CASES_FILE
    with suppress(FileNotFoundError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns, status.st_ino
    return ()


def fingerprint_case(attempts: Attempts, case: PlannedCase, shared: tuple[object, ...]) -> str:
    """Fingerprint all that the figures of a case depend on; no file is opened."""
    known = [
        (
            print_files(attempts.run, case, task),
            task,
            attempts.states.get(task.marker),
            task.group_id in attempts.submitted,
        )
        for repeat in attempts.list_repeats(case)
        for task in attempts.tasks.get((case.case_id, repeat), ())
    ]
    text = ascii((shared, case, attempts.list_repeats(case), known))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


# the file of a run


@dataclass(frozen=True)
class KeptResults:
    """The results of a run, encoded, with the fingerprints of its cases."""

    prints: Mapping[str, str]
    encoded: Mapping[str, bytes]

    def decode_frames(self) -> RunFrames:
        return RunFrames(**{name: decode_frame(self.encoded[name]) for name in _FRAMES})

    def decode(self) -> Results:
        samples, cases, notes = (
            decode_frame(self.encoded[name]) for name in ("samples", "cases", "all_notes")
        )
        return Results(
            self.decode_frames(),
            samples.set_index(INDEX).value.rename(None),
            cases.set_index("case_id", drop=False).rename_axis(None),
            notes,
        )


def keep_results(run: Run, results: Results, prints: Mapping[str, str]) -> None:
    """Keep the results of a run in place of earlier ones; without a cache do nothing."""
    frames = {
        **{name: getattr(results.frames, name) for name in _FRAMES},
        "samples": results.samples.rename("value").reset_index(),
        "cases": results.cases,
        "all_notes": results.notes,
    }
    encoded = {name: encode_frame(frame) for name, frame in frames.items()}
    content = pickle.dumps((dict(prints), encoded), protocol=5)
    with suppress(OSError, InputError):
        folder = make_cache_dir("frames")
        write_file(folder / hash_path(run.path), _digest(content) + content, mode=0o600)
        evict_oldest(folder, MOST_RUNS)


def load_results(run: Run) -> Optional[KeptResults]:
    """Return what was kept of a run; None where that is nothing, damaged, or another user's."""
    with suppress(OSError, InputError):
        path = make_cache_dir("frames") / hash_path(run.path)
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            found = file.read()
        os.utime(path)
        digest, content = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
        return KeptResults(*_decode(content)) if digest == _digest(content) else None
    return None


def _digest(content: bytes) -> bytes:
    """Hash what is kept together with the code that made it."""
    text = ascii(fingerprint_code()).encode()
    return hashlib.blake2b(text + content, digest_size=_DIGEST_BYTES).digest()


# frames as bytes, in which no class of pandas is


def encode_frame(frame: "DataFrame") -> bytes:
    """Encode a typed frame, without its index."""
    columns = [(name, str(values.dtype), _encode_column(values)) for name, values in frame.items()]
    return pickle.dumps(columns, protocol=5)


def decode_frame(content: bytes) -> "DataFrame":
    from pandas import DataFrame

    columns = _decode(content)
    return DataFrame({name: _decode_column(dtype, values) for name, dtype, values in columns})


def _encode_column(values: "Series") -> Any:
    dtype = str(values.dtype)
    if dtype == REPEATED_TEXT:
        return values.cat.codes.to_numpy("int32").tobytes(), values.cat.categories.tolist()
    if dtype == TIME:
        return values.dt.tz_localize(None).to_numpy("datetime64[ns]").tobytes()
    return values.to_numpy().tobytes() if _is_plain(dtype) else list_values(values)


def _decode_column(dtype: str, values: Any) -> Any:
    import numpy
    from pandas import Categorical, Series

    if dtype == REPEATED_TEXT:
        codes, categories = values
        return Categorical.from_codes(numpy.frombuffer(codes, "int32"), categories)
    if dtype == TIME:
        return Series(numpy.frombuffer(values, "datetime64[ns]")).dt.tz_localize("UTC")
    if _is_plain(dtype):
        return numpy.frombuffer(values, dtype).copy()
    return make_array(dtype, values)


def _is_plain(dtype: str) -> bool:
    """Whether a column is an array of NumPy's with numbers."""
    return dtype in ("float64", "int64", "int32", "bool")


def _decode(content: bytes) -> Any:
    """Decode values of Python's own types and notes, and nothing else."""
    return _Decoder(io.BytesIO(content)).load()


class _Decoder(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != (Remark.__module__, Remark.__name__):
            raise pickle.UnpicklingError(f"{module}.{name} is no value of a frame")
        return Remark
