"""Every unit test has an empty working directory and a user without settings."""

import gc
import os
import tempfile
from pathlib import Path

import pytest
from builders import SMALL_MATRIX, copy_run, make_site, print_queue, write_matrix, write_program
from history_runs import stage_seven
from support.local_runs import make_temp_dir

from dlperf_slurm.config.site import LoadedSite
from dlperf_slurm.jobs.plan import PlannedMatrix, resolve
from dlperf_slurm.jobs.run_directory import Run, open_run
from dlperf_slurm.jobs.stage import stage_run
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix


def pytest_collection_finish():
    """Collect garbage rarely, and not among what is imported: it takes a sixth of the CPU time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def own_temporary_folder(tmp_path_factory):
    """Set TMPDIR, which contains the machine's lock: a test waits only for its own runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        # tempfile caches the first folder
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks():
    """Leave out fsync, which takes milliseconds: no test loses the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def own_font_cache():
    """Share matplotlib's font cache, which takes seconds to build, among all tests."""
    with pytest.MonkeyPatch.context() as patch:
        if "MPLCONFIGDIR" not in os.environ:
            patch.setenv("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))
        yield


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Run a test in an empty folder; the user's own settings would be below `home/.config`."""
    for name in os.environ:
        if name.startswith(("SLURM_", "SBATCH_", "DLPERF_", "OMPI_")):
            monkeypatch.delenv(name)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".state"))
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", str(tmp_path / ".environments"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def own_machine_lock(home, monkeypatch):
    """Set a TMPDIR of the test's own, which contains the machine's lock."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(make_temp_dir(home)))


@pytest.fixture
def bin_dir(tmp_path, monkeypatch) -> Path:
    """Return an empty folder that is the whole PATH: Slurm is only the fake programs in it."""
    folder = tmp_path / ".bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def cluster(bin_dir, home) -> Path:
    """Put the clients of an empty cluster on PATH; sbatch notes its options in `calls`.

    It accepts all array jobs, as 1, 2, ...
    """
    count = f"n=0; while read -r _; do n=$((n + 1)); done < {home}/calls; echo $n"
    submit = f'echo "$@" >> {home}/calls; {count}'
    write_program(bin_dir, "sbatch", f'case "$*" in *--parsable*) {submit};; esac')
    write_program(bin_dir, "scontrol", "echo 'ClusterName = tiny'; echo 'MaxArraySize = 1001'")
    for name in ("srun", "squeue", "sacct"):
        write_program(bin_dir, name, print_queue())
    return bin_dir


@pytest.fixture(scope="session")
def small_run(tmp_path_factory) -> Path:
    """Stage a real run directory, which no test changes: 1n1g, 1n2g and 2n2g, two repeats each."""
    folder = tmp_path_factory.mktemp("small")
    file = read_matrix(write_matrix(SMALL_MATRIX, folder / "matrix.toml"))
    python = folder / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    site = make_site(environments={"pytorch": {"venv": str(python.parents[1])}})
    plan = resolve(expand_matrix(file), site, max_array_size=1001)
    return stage_run(
        folder, PlannedMatrix(file, LoadedSite("tiny", site, {}), plan), ["dlperf-slurm"]
    ).path


@pytest.fixture(scope="session")
def staged(tmp_path_factory) -> Path:
    """Stage a run of seven repeats without records, which no test changes."""
    return stage_seven(tmp_path_factory.mktemp("seven"))


@pytest.fixture
def staged_run(small_run, home) -> Run:
    """Copy the small run for a test."""
    return open_run(copy_run(small_run, home / "results" / small_run.name))
