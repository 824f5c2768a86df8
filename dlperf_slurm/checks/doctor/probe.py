"""A plan on its site -> probe jobs: two ranks of each framework, launched as its array tasks are.

The ranks write what they find to files (`worker.probe`).
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from dlperf_slurm import slurm_client
from dlperf_slurm.config.folders import make_absolute_path
from dlperf_slurm.config.overrides import OVERRIDE, JobKind, get_job_kind
from dlperf_slurm.config.site import LoadedSite, Site
from dlperf_slurm.contract.axes import WORKER
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError, SchedulerError
from dlperf_slurm.files.folders import file_permissions, make_folder
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.jobs.grouping import ArrayTask, Group, group_array_tasks
from dlperf_slurm.jobs.markers import MARKERS_DIR
from dlperf_slurm.jobs.plan import Plan
from dlperf_slurm.jobs.private_values import (
    share_with_group,
    take_private_values,
    write_private_values,
)
from dlperf_slurm.jobs.render import render_scripts
from dlperf_slurm.jobs.run_directory import make_job_name
from dlperf_slurm.jobs.stage import freeze_code, make_run_id, write_scripts
from dlperf_slurm.matrix.expand import MatrixCase
from dlperf_slurm.provision.environments.pins import read_pins
from dlperf_slurm.scheduler.queue import QueueWatcher
from dlperf_slurm.scheduler.state import COMPLETING, FINAL_STATES
from dlperf_slurm.worker.probe import MODULE_FILE

RANKS = 2
LIMIT_MINUTES = 5
GRACE_SECONDS = 60.0 * (LIMIT_MINUTES + 2)
LOOK_SECONDS = 1.0
# maximum number of polls of the queue after scancel, until the job has ended
CANCEL_LOOKS = 5


@dataclass(frozen=True)
class Probe:
    """A probe job of one framework: its case, of at most two ranks, and the site's settings."""

    case: MatrixCase
    site: Site

    @property
    def name(self) -> str:
        """The framework, with its gradient synchronization if not native: "pytorch-horovod"."""
        sync = self.case.axes.gradient_sync
        return self.case.axes.framework + (f"-{sync}" if sync != "native" else "")

    @property
    def task(self) -> ArrayTask:
        return ArrayTask(self.case, 1, 1)

    @property
    def group(self) -> Group:
        """The array job that runs only this probe."""
        (group,) = group_array_tasks([self.task], self.site, max_array_size=1)
        return replace(group, group_id=f"probe-{self.name}")


@dataclass(frozen=True)
class JobEnd:
    """How a probe job ended: Slurm's state, reason and nodes, or sbatch's error as `refusal`.

    `left` is the scancel command for a job that could not be cancelled, or "".
    """

    state: str
    reason: str = ""
    nodes: str = ""
    refusal: str = ""
    left: str = ""


def choose_probes(plan: Plan, site: Site) -> list[Probe]:
    """Choose one probe per framework and gradient_sync: its largest case, on two ranks at most.

    The largest case is the one on the largest topology; its batch size becomes 1. External scripts
    are not probed, since they need not use this package's MPI.
    """
    largest: dict[tuple[str, str], MatrixCase] = {}
    own = (case for case in plan.cases if case.axes.script == WORKER)
    for case in sorted(own, key=lambda case: case.topology):
        largest[case.axes.framework, case.axes.gradient_sync] = case
    probes = []
    for case in largest.values():
        topology = shrink(case.topology)
        job_site = resolve_for_probe(site, get_job_kind(case.axes))
        axes = replace(case.axes, topology=str(topology), batch_size_per_device=1)
        probes.append(Probe(replace(case, axes=axes), job_site))
    return probes


def shrink(topology: Topology) -> Topology:
    """Return the topology of a probe job: two ranks on two nodes if `topology` has several nodes.

    Else two ranks on one node, or a single rank if `topology` has only one.
    """
    if topology.nodes > 1:
        return Topology(RANKS, 1)
    return Topology(1, min(RANKS, topology.devices_per_node))


def resolve_for_probe(site: Site, kind: JobKind) -> Site:
    """Return the site resolved for a kind of job, with unshared jobs of at most LIMIT_MINUTES."""
    job_site = site.resolve(kind)
    minutes = min(LIMIT_MINUTES, job_site.get_time_limit_minutes(kind.topology))
    changes = {
        "time_limit_minutes": {"default": minutes},
        "array_throttle": None,
        "tasks_per_job": 1,
    }
    return job_site.model_copy(update={**changes, OVERRIDE: ()})


@contextmanager
def open_workplace(results: Path, loaded: LoadedSite) -> Iterator[Path]:
    """Create a hidden folder for probe jobs in the folder `results`, and yield its path.

    It is laid out like a run directory, with a copy of the worker's code, and is removed at the end
    of the context. Raises InputError if it cannot be written.
    """
    results = make_absolute_path(results)
    new = [place for place in (results, *results.parents) if not place.exists()]
    folder = results / f".{make_run_id('doctor', loaded.name)}"
    site, private = take_private_values(loaded)
    try:
        with file_permissions(site.file_mask):
            (folder / MARKERS_DIR).mkdir(parents=True)
            share_with_group(folder, site)
            if private:
                write_private_values(folder, private)
            freeze_code(folder)
        yield folder
    except OSError as error:
        raise InputError(f"{results}: cannot be written: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            for place in new:
                place.rmdir()


def stage_probe(probe: Probe, folder: Path) -> Path:
    """Write the script of a probe job, scripts/GROUP.sbatch, and its case below `folder`.

    Returns the folder of the probe's attempt, below which the ranks write their files.
    """
    scripts = render_scripts(
        [probe.group], probe.site, folder.name[1:], folder, worker_command=["probe"]
    )
    attempt = folder / probe.task.attempt_dir
    with file_permissions(probe.site.file_mask):
        write_scripts(folder, scripts)
        make_folder(attempt, root=folder)
        module = read_pins(probe.case.axes.framework).module
        write_file(attempt / MODULE_FILE, module.encode(), root=folder)
    return attempt


def run_on_slurm(
    probe: Probe, folder: Path, wait_seconds: float, report: Callable[[str], None]
) -> JobEnd:
    """Submit a probe job and wait for its end; cancel it if it is PENDING too long.

    Waits `wait_seconds` for its start, then its time limit. A refusal by sbatch is returned too.
    """
    script = folder / "scripts" / f"{probe.group.group_id}.sbatch"
    clusters = probe.site.clusters or ""
    job_name = make_job_name(folder.name[1:], probe.group.group_id)
    watcher = QueueWatcher([job_name], scripts_dir=script.parent, clusters=clusters)
    try:
        job_id = _submit(script, probe.site, watcher)
    except SchedulerError as error:
        return JobEnd("", refusal=str(error))
    report(f"probe {probe.name}: job {job_id}" + (f" on cluster {clusters}" if clusters else ""))
    end = JobEnd("PENDING")
    left = ""
    try:
        end = _await_end(job_id, watcher, wait_seconds, end)
    finally:
        if end.state not in FINAL_STATES:
            left = _cancel(job_id, clusters, job_name, watcher)
    return replace(end, left=left)


def _submit(script: Path, site: Site, watcher: QueueWatcher) -> str:
    """Submit a script with sbatch; return the job id it prints, else the one in the queue."""
    command = ["sbatch", "--parsable", str(script)]
    answer = slurm_client.run_client(command, inherit=site.inherit)
    try:
        return slurm_client.parse_job_id(answer)
    except SchedulerError:
        found = watcher.find_array_job_id()
        if found is None:
            raise
        return found


def _await_end(job_id: str, watcher: QueueWatcher, wait_seconds: float, end: JobEnd) -> JobEnd:
    """Wait for the end of a job by polling squeue, and return its last known state.

    A job that is not in the queue any more counts as COMPLETED. `end` is its state so far;
    `wait_seconds` is how long the job may be PENDING.
    """
    deadline = time.monotonic() + wait_seconds
    # wait longer for a job that runs, since its time limit ends it
    while time.monotonic() < deadline + (0 if end.state == "PENDING" else GRACE_SECONDS):
        found = _ask(job_id, watcher)
        if found is None:
            return replace(end, state="COMPLETED")
        end = found
        if end.state in FINAL_STATES:
            return end
        time.sleep(LOOK_SECONDS)
    return end


def _ask(job_id: str, watcher: QueueWatcher) -> Optional[JobEnd]:
    """Return the state of a job in squeue: UNKNOWN if squeue fails, None if the job is gone."""
    try:
        watcher.read_queue()
    except SchedulerError as error:
        return JobEnd("UNKNOWN", str(error))
    # QueueWatcher lists a job without an array as element 0
    row = watcher.queue.get(f"{job_id}_0")
    return None if row is None else JobEnd(row.state, row.reason, row.nodes)


def _cancel(job_id: str, clusters: str, job_name: str, watcher: QueueWatcher) -> str:
    """Cancel a job if its name is `job_name`; return "", or the scancel command if it runs on."""
    with suppress(SchedulerError):
        slurm_client.cancel_jobs([job_id], clusters, job_name)
        for look in range(CANCEL_LOOKS):
            if look:
                time.sleep(LOOK_SECONDS)
            end = _ask(job_id, watcher)
            if end is None or end.state in {*FINAL_STATES, COMPLETING}:
                return ""
    return " ".join(["scancel", *slurm_client.get_cluster_option(clusters), job_id])
