"""A plan on its site -> results of checks of what would keep its ranks from starting.

The command `doctor` calls `examine` before a run is submitted.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dlperf_slurm.checks.doctor.finding import CheckResult
from dlperf_slurm.checks.doctor.probe import (
    LOOK_SECONDS,
    JobEnd,
    Probe,
    choose_probes,
    open_workplace,
    run_on_slurm,
    stage_probe,
)
from dlperf_slurm.checks.doctor.probe_results import evaluate_probe, read_answers
from dlperf_slurm.checks.doctor.static_checks import ENVIRONMENT, check_without_jobs
from dlperf_slurm.checks.parity.run_case import run_script
from dlperf_slurm.config.site import LoadedSite
from dlperf_slurm.jobs.plan import Plan
from dlperf_slurm.scheduler.machine_lock import lock_machine
from dlperf_slurm.scheduler.state import FINAL_STATES

# a shared file system may show a node's files late
FILES_SECONDS = 10.0


def examine(
    plan: Plan,
    loaded: LoadedSite,
    results: Path,
    wait_seconds: float,
    report: Callable[[str], None],
) -> Iterator[CheckResult]:
    """Check a plan without jobs; if nothing is wrong, run one small probe job per framework.

    Yields the results. Probe jobs do not run if a check failed, except for missing environments:
    their frameworks are left out. Waits up to `wait_seconds` for each job to start. `report` gets
    messages on the progress. Raises InputError if the folder `results` cannot be written.
    """
    findings = check_without_jobs(plan, loaded.site, results)
    yield from findings
    probes = choose_probes(plan, loaded.site)
    faults = [finding for finding in findings if finding.status == "fault"]
    # a framework without an environment does not keep the others from being probed
    missing = {place for fault in faults if fault.what == ENVIRONMENT for place in fault.places}
    if any(fault.what != ENVIRONMENT for fault in faults):
        words = "skipped until the problems above are fixed"
        yield CheckResult("undecided", "probe job", (), words)
        return
    probes = [probe for probe in probes if probe.case.axes.framework not in missing]
    if probes:
        with open_workplace(results, loaded) as folder:
            for probe in probes:
                yield from _try(probe, folder, wait_seconds, report)


def _try(
    probe: Probe, folder: Path, wait_seconds: float, report: Callable[[str], None]
) -> list[CheckResult]:
    """Run one probe job, on this machine or on Slurm, and return the check results.

    The job may be PENDING for `wait_seconds`.
    """
    attempt = stage_probe(probe, folder)
    if probe.site.scheduler == "local":
        script = folder / "scripts" / f"{probe.group.group_id}.sbatch"
        minutes = probe.group.time_limit_minutes
        report(f"probe {probe.name}: {probe.case.topology} on this machine")
        with lock_machine(run_id=folder.name[1:]):
            exit_code = run_script(script, folder / "probe.log", 60 * minutes, ["0"])
        end = JobEnd("COMPLETED" if exit_code == 0 else "FAILED", f"exit code {exit_code}")
    else:
        end = run_on_slurm(probe, folder, wait_seconds, report)
        if end.state in FINAL_STATES:
            _await_files(attempt / "s0", probe.case.topology.world_size)
    return evaluate_probe(probe, end, attempt / "s0", folder)


def _await_files(start: Path, ranks: int) -> None:
    """Wait up to FILES_SECONDS until the files of all `ranks` are visible on this host.

    `start` is the folder with the ranks' files and the output of the probe job.
    """
    deadline = time.monotonic() + FILES_SECONDS
    while time.monotonic() < deadline:
        answers = read_answers(start)
        if len(answers) >= ranks and all(answer.is_done for answer in answers):
            return
        time.sleep(LOOK_SECONDS)
