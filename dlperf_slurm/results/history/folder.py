"""A results folder -> its run directories, and a digest of the files that a run is read from."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path

from dlperf_slurm.contract.record import RECORD_FILE, STEP_SECONDS_FILE
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.journal import JOURNAL_FILE
from dlperf_slurm.jobs.run_directory import MANIFEST_FILE, SCRIPTS_DIR

# what a run directory has besides its manifest, so that one without is half a run
_SIGNS = (JOURNAL_FILE, SCRIPTS_DIR, "cases")
_FIGURES = (
    MANIFEST_FILE,
    JOURNAL_FILE,
    f"{SCRIPTS_DIR}/*.tasks",
    f"cases/*/r*/a*/{RECORD_FILE}",
    f"cases/*/r*/a*/{STEP_SECONDS_FILE}",
)


@dataclass(frozen=True)
class Folder:
    """The run directories of a results folder by name, and one line for each half run."""

    runs: tuple[Path, ...]
    problems: tuple[str, ...]


def list_runs(results_dir: Path) -> Folder:
    """InputError when there is no such folder.

    What is no run is passed over: other files and folders may lie there. A run that a second name
    leads to counts once.
    """
    runs: dict[Path, Path] = {}
    problems = []
    try:
        paths = sorted(path for path in results_dir.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise InputError(f"{results_dir}: cannot be read: {error.strerror}") from error
    for path in paths:
        try:
            path.name.encode()
            if (path / MANIFEST_FILE).is_file():
                runs.setdefault(path.resolve(), path)
            elif any((path / name).exists() for name in _SIGNS):
                problems.append(f"{path}: has no {MANIFEST_FILE}: it is half a run")
        except UnicodeEncodeError:
            problems.append(f"{str(path)!a}: left out, its name is not UTF-8")
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror}")
    return Folder(tuple(runs.values()), tuple(problems))


def digest_run(run_dir: Path) -> str:
    """Changes with the name, size or time of any file that the figures of a run are read from."""
    digest = hashlib.sha256()
    for line in _describe_files(run_dir):
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _describe_files(run_dir: Path) -> Iterator[str]:
    for pattern in _FIGURES:
        # a folder has thousands of these files: pathlib's own glob takes twice as long
        for path in sorted(glob(f"{escape(str(run_dir))}/{pattern}")):  # noqa: PTH207
            name = path[len(str(run_dir)) :]
            try:
                status = Path(path).stat()
            except OSError:
                # a link that leads nowhere, or a file that was just removed
                yield f"{name}\0gone\n"
            else:
                yield f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
