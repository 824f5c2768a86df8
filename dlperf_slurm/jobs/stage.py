"""A plan -> a run directory: scripts, cases, frozen worker code, manifest and journal."""

import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import tomli_w

from dlperf_slurm.config.folders import (
    find_resource_dir,
    find_user_name,
    get_host_name,
    make_absolute_path,
)
from dlperf_slurm.config.site import Site
from dlperf_slurm.config.toml_tables import parse_toml
from dlperf_slurm.contract.axes import DALI, FOLDER
from dlperf_slurm.contract.times import format_now
from dlperf_slurm.errors import InputError
from dlperf_slurm.files.folders import file_permissions, make_folder
from dlperf_slurm.files.reading import read_text
from dlperf_slurm.files.writing import remove_file, write_file
from dlperf_slurm.jobs import private_values
from dlperf_slurm.jobs.disk_space import check_disk_space
from dlperf_slurm.jobs.grouping import Group
from dlperf_slurm.jobs.journal import STAGED, Event, append_event
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, Manifest, PlannedCase, format_manifest
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.partial_runs import LOCK_FILE, PARTIAL_SUFFIX, create_partial_run
from dlperf_slurm.jobs.plan import PlannedMatrix, count_blocks
from dlperf_slurm.jobs.render import render_scripts
from dlperf_slurm.jobs.run_directory import (
    CASES_FILE,
    CODE_DIR,
    EXTERNAL_SCRIPTS_FILE,
    HARNESS_FILE,
    MATRIX_FILE,
    SITE_FILE,
    Run,
)
from dlperf_slurm.matrix.expand import MatrixCase
from dlperf_slurm.matrix.settings import OWN_SETTINGS, list_settings
from dlperf_slurm.version import __version__

# the parts of the package that the worker imports
FROZEN_CODE = (
    *("__init__.py", "contract", "files", "logs", "published/__init__.py", "published/logs"),
    *("version.py", "worker"),
)


# for the whole file of cases, or of external scripts
TEXTS_LIMIT_BYTES = 2**28
# log formats are files of this folder, those of the matrix too
FORMATS_DIR = "dlperf_slurm/published/logs"


def stage_run(
    results_dir: Path,
    matrix: PlannedMatrix,
    command: Sequence[str],
    run_id: str = "",
    interleaved: Sequence[str] = (),
) -> Run:
    """Write a run directory that is ready to be submitted.

    It is made under a hidden name and renamed, so that it appears complete or not at all. `command`
    is the user's command line, for the manifest. `interleaved` has the ids of two runs to measure
    in turns, and `run_id` that of this one; by default it is new.

    Raises InputError if the results folder is not writable, or has too little free disk space.
    """
    file, plan = matrix.file, matrix.plan
    site, private = private_values.take_private_values(matrix.loaded)
    run_id = run_id or make_run_id(file.name, matrix.loaded.name)
    run_dir = make_absolute_path(results_dir) / run_id
    manifest = make_manifest(run_id, matrix, command, interleaved)
    check_disk_space(results_dir, plan.cases)
    folder = make_absolute_path(results_dir) / f".{run_id}{PARTIAL_SUFFIX}"
    try:
        with create_partial_run(folder):
            with file_permissions(site.file_mask):
                private_values.share_with_group(folder, site)
                folder.chmod(folder.stat().st_mode | (0o777 & ~site.file_mask))
                (folder / MARKERS_DIR).mkdir()
                text = format_manifest(manifest)
                write_file(folder / MANIFEST_FILE, text.encode(), is_synced=True)
                write_file(folder / MATRIX_FILE, file.toml.text.encode())
                site = freeze_site(site, plan.cases)
                text = tomli_w.dumps(site.model_dump(mode="json", exclude_none=True))
                write_file(folder / SITE_FILE, text.encode())
                if private:
                    private_values.write_private_values(folder, private)
                freeze_code(folder)
                for name, table in file.matrix.formats.items():
                    path = folder / CODE_DIR / FORMATS_DIR / f"{name}.json"
                    write_file(path, json.dumps(table, default=str).encode(), root=folder)
                stage_groups(folder, run_dir, manifest, plan.groups, site)
            remove_file(folder / LOCK_FILE)
            folder.rename(run_dir)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise InputError(f"{results_dir}: cannot be written: {error}") from error
        raise
    return Run(run_dir, manifest)


def freeze_site(site: Site, cases: Sequence[MatrixCase]) -> Site:
    """Return the site with absolute paths of the environments and data sets that the cases use.

    Retries, which may be staged from another directory, then use the same data and environments.
    """
    environments = {
        case.axes.framework: site.find_environment(case.axes.framework) for case in cases
    }
    datasets = {
        case.dataset: site.find_dataset(case.dataset)
        for case in cases
        if case.axes.data in (FOLDER, DALI)
    }
    return site.model_copy(
        update={
            "environments": {**site.environments, **environments},
            "datasets": {**site.datasets, **datasets},
        }
    )


def stage_groups(
    folder: Path, run_dir: Path, manifest: Manifest, groups: Sequence[Group], site: Site
) -> None:
    """Write scripts and cases of groups (array jobs) to `folder`, which becomes `run_dir`.

    `folder` is `run_dir` itself, or will be renamed to it. Array tasks make their own folders when
    they start. The journal line that makes a group part of the run is written last.
    """
    write_scripts(folder, render_changes(folder, run_dir, manifest, groups, site))
    for group in groups:
        size = f"{len(group.array_tasks)} array tasks"
        append_event(folder, Event(STAGED, group_id=group.group_id, detail=size))


def render_changes(
    folder: Path, run_dir: Path, manifest: Manifest, groups: Sequence[Group], site: Site
) -> dict[str, str]:
    """Render the files of groups (array jobs) as `render_scripts`: text by relative path.

    The file of cases and that of external scripts are left out if they are the same in `folder`, as
    a running job may be reading them. `folder` is or will be renamed to `run_dir`.
    """
    earlier = {name: _read_text(folder, name) for name in (CASES_FILE, EXTERNAL_SCRIPTS_FILE)}
    run_id, headline = manifest.run_id, manifest.headline
    files = render_scripts(groups, site, run_id, run_dir, headline, earlier=earlier)
    return {name: text for name, text in files.items() if text != earlier.get(name)}


def _read_text(folder: Path, relative: str) -> str:
    """Read a text file of a run, or "" if it is missing; raise FileProblem if unreadable."""
    try:
        return read_text(folder / relative, TEXTS_LIMIT_BYTES, root=folder)
    except FileNotFoundError:
        return ""


def write_scripts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write texts to files of a run, by relative path, and sync them to disk."""
    for relative, text in texts.items():
        make_folder((folder / relative).parent, root=folder)
        write_file(folder / relative, text.encode(), root=folder, is_synced=True)


def make_run_id(matrix_name: str, site_name: str) -> str:
    """Make the id of a new run: time (so that ids sort), matrix, site, and random digits.

    The id is part of Slurm job names, so it must not contain commas (`squeue --name` is a list).
    """
    moment = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    what = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{matrix_name}-{site_name}")
    return f"{moment}-{what}-{secrets.token_hex(2)}"


def make_manifest(
    run_id: str, matrix: PlannedMatrix, command: Sequence[str], interleaved: Sequence[str] = ()
) -> Manifest:
    """Return the manifest of a new run; `command` is the user's command line."""
    file, loaded, plan = matrix[:3]
    tracking = loaded.site.tracking
    return Manifest(
        run_id=run_id,
        title=file.matrix.title or file.name,
        matrix_name=file.name,
        site_name=loaded.name,
        scheduler=loaded.site.scheduler,
        created_at=format_now(),
        created_by=find_user_name(),
        created_on=get_host_name(),
        command=private_values.hide_private_values(command),
        tool_version=__version__,
        tool_git=find_git_state(),
        poll_seconds=tracking.poll_seconds,
        slowest_poll_seconds=tracking.slowest_poll_seconds,
        lost_after_seconds=tracking.lost_after_seconds,
        clusters=loaded.site.clusters or "",
        inherit=loaded.site.inherit,
        max_submitted=loaded.site.max_submitted,
        within_seconds=matrix.within_seconds,
        interleaved=tuple(interleaved),
        nodes=tuple(matrix.nodes),
        absent_nodes=tuple(matrix.absent_nodes),
        cases=(
            *(_describe_case(case, "", loaded.site) for case in plan.cases),
            *(
                _describe_case(left_out.case, left_out.reason, loaded.site)
                for left_out in plan.left_out
            ),
        ),
    )


def _describe_case(case: MatrixCase, reason: str, site: Site) -> PlannedCase:
    settings = list_settings(case.protocol, case.axes, case.training.epochs)
    return PlannedCase(
        case_id=case.case_id,
        model=case.model,
        axes=case.axes,
        repeats=case.protocol.repeats,
        notes=case.notes,
        reason=reason,
        epochs=case.training.epochs,
        blocks=count_blocks(case, site),
        protocol={name: v for name, v in settings.items() if name not in OWN_SETTINGS},
        unit=case.script_table.unit if case.script_table else "",
        profiler=case.profiler,
    )


def find_git_state() -> str:
    """Return the git commit of the tool's checkout, with "-dirty" if changed; "" without one."""
    checkout = Path(__file__).parents[2]
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def freeze_code(run_dir: Path) -> None:
    """Copy the code that the jobs of a new run execute: the worker, and the scripts' harness.

    Later attempts use these copies too, even if another version of the tool stages them.
    """
    harness = find_resource_dir("templates") / Path(HARNESS_FILE).name
    make_folder((run_dir / HARNESS_FILE).parent, root=run_dir)
    write_file(run_dir / HARNESS_FILE, harness.read_bytes(), root=run_dir, is_synced=True)
    source = Path(__file__).parents[1]
    target = run_dir / CODE_DIR / "dlperf_slurm"
    target.mkdir(parents=True)
    for name in FROZEN_CODE:
        (target / name).parent.mkdir(exist_ok=True)
        _copy(source / name, target / name)


def _copy(source: Path, target: Path) -> None:
    """Copy a file or folder with the permissions of the run instead of those of the source.

    TOML is converted to JSON, as the framework's Python may have no tomllib.
    """
    if source.suffix == ".toml":
        table = parse_toml(source.read_text(encoding="utf-8"))
        target.with_suffix(".json").write_text(json.dumps(table), encoding="utf-8")
    elif not source.is_dir():
        shutil.copyfile(source, target)
    elif source.name != "__pycache__":
        target.mkdir()
        for path in source.iterdir():
            _copy(path, target / path.name)
