"""A plan on its site -> results of the checks that need no job."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dlperf_slurm import slurm_client
from dlperf_slurm.checks.doctor.finding import CheckResult, make_fault, merge_places
from dlperf_slurm.checks.doctor.resource_requests import check_request
from dlperf_slurm.config.folders import describe_denied, get_creation_command
from dlperf_slurm.config.site import Site
from dlperf_slurm.errors import InputError, SchedulerError
from dlperf_slurm.jobs.disk_space import check_disk_space
from dlperf_slurm.jobs.grouping import Group
from dlperf_slurm.jobs.plan import Plan, is_denied, list_missing_environments
from dlperf_slurm.jobs.render import get_common_site, render_scripts
from dlperf_slurm.program import COMMAND
from dlperf_slurm.provision.sites.survey import Survey, survey_cluster
from dlperf_slurm.scheduler.sbatch_errors import is_limit_that_passes, is_no_answer

ENVIRONMENT = "environment"


# variable of sbatch -> the option that it overrides
_INHERITED = {
    "SBATCH_PARTITION": "partition",
    "SBATCH_ACCOUNT": "account",
    "SBATCH_QOS": "qos",
    "SBATCH_RESERVATION": "reservation",
}


def check_requests(plan: Plan, site: Site) -> list[CheckResult]:
    """Find array jobs of a plan that sbatch refuses, or that would be PENDING for ever.

    `submit` does these checks. They use the output of Slurm's commands; limits that these do not
    report are not checked. A request that exceeds a limit by that output, but that `sbatch
    --test-only` accepts, is "ok". Returns [] for the local scheduler and for another cluster.
    """
    if site.scheduler == "local" or site.clusters:
        return []
    findings, _ = _check_requests(plan, site, survey_cluster())
    return findings


def check_without_jobs(plan: Plan, site: Site, results: Path) -> list[CheckResult]:
    """Run all checks that need no job; return all results, also those that are "ok".

    `results` is the folder that runs are written to.
    """
    findings = [*_check_environments(plan, site), *_check_folder(plan, results)]
    if site.scheduler == "local":
        return findings
    # the resources of another cluster are checked only by its sbatch
    survey = Survey() if site.clusters else survey_cluster()
    findings += [CheckResult("undecided", "cluster", (), words) for words in survey.problems]
    requests, doubted = _check_requests(plan, site, survey)
    if not requests and survey.partitions:
        size = f"{len(plan.groups)} array jobs fit the cluster's partitions, accounts and limits"
        requests = [CheckResult("ok", "limits", (), size)]
    rest = [group for group in plan.groups if group.group_id not in doubted]
    return [*findings, *requests, *_test_scripts(rest, site)]


def _check_requests(plan: Plan, site: Site, survey: Survey) -> tuple[list[CheckResult], set[str]]:
    """Compare the requests of all array jobs with the cluster; ask sbatch about those with a fault.

    Returns the results, and the group_ids about which sbatch was asked.
    """
    found = []
    for group in plan.groups:
        job_site = _add_inherited(get_common_site([plan.sites[kind] for kind in group.kinds]))
        found += check_request(group, job_site, survey)
    found = merge_places(found)
    doubted = {
        place
        for finding in found
        if finding.status == "fault" and finding.decider
        for place in finding.places
    }
    asked = _test_scripts([group for group in plan.groups if group.group_id in doubted], site)
    answers = {place: finding for finding in asked for place in finding.places}
    return [_decide(finding, answers, survey.has_submit_plugin) for finding in found], doubted


def _decide(
    finding: CheckResult, answers: Mapping[str, CheckResult], has_submit_plugin: bool
) -> CheckResult:
    """Return a check result, corrected by what `sbatch --test-only` said about the same array job.

    `answers` has what sbatch refuses by group_id. A job that sbatch does not refuse is a fault only
    if it would be PENDING for ever, and the cluster has no plug-in (`has_submit_plugin`) that may
    change what jobs request.
    """
    if finding.status != "fault" or not finding.decider:
        return finding
    against = [answers[place] for place in finding.places if place in answers]
    if against:
        # min prefers "fault" to "undecided", as it compares them alphabetically
        status, words = min((answer.status, answer.words) for answer in against)
        return replace(finding, status=status, words=f"{finding.words} ({words})")
    if finding.decider == "queue" and not has_submit_plugin:
        words = f"{finding.words}: sbatch would accept the job, but it would stay PENDING for ever"
        return replace(finding, words=words)
    return replace(finding, status="ok", words=f"{finding.words}, but sbatch accepts the job")


def _add_inherited(site: Site) -> Site:
    """Return the site with the options that sbatch takes from SBATCH_ variables of this shell.

    They are added as directives, which come before the site's keys here, as they do in sbatch.
    """
    options = [
        f"--{option}={os.environ[name]}"
        for name, option in _INHERITED.items()
        if name in site.inherit and os.environ.get(name)
    ]
    return site.model_copy(update={"directives": (*site.directives, *options)})


def _check_environments(plan: Plan, site: Site) -> Iterator[CheckResult]:
    """Yield a fault for each framework without an environment on this host, "ok" for the others."""
    places = {
        kind: job_site.find_environment(kind.framework).venv
        for kind, job_site in plan.sites.items()
    }
    missing = {kind for kind in places if list_missing_environments({kind: plan.sites[kind]})}
    for framework, venv in sorted({(kind.framework, str(places[kind])) for kind in missing}):
        remedy = (
            f"create it: `{get_creation_command(framework, site.device)}`, or set your own in "
            f"[environments.{framework}] of the site file"
        )
        words = f"no environment at {venv}"
        if is_denied(venv):
            words, remedy = describe_denied(Path(venv)).split("; ")
        yield make_fault(ENVIRONMENT, words, remedy).at(framework)
    names = {kind.framework for kind in places} - {kind.framework for kind in missing}
    if names:
        yield CheckResult("ok", ENVIRONMENT, tuple(sorted(names)), "exists")


def _check_folder(plan: Plan, results: Path) -> Iterator[CheckResult]:
    """Check that runs can be written to `results` from this host, with enough free disk space."""
    folder = results.absolute()
    place = folder
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        remedy = "give a writable folder with --results"
        fault = make_fault("run directory", f"{place} cannot be written", remedy)
        yield fault.at(str(folder))
        return
    try:
        check_disk_space(folder, plan.cases)
    except InputError as error:
        words = str(error).removeprefix(f"{folder}: ")
        remedy = "free disk space, or give another --results folder"
        yield make_fault("run directory", words, remedy).at(str(folder))
        return
    yield CheckResult("ok", "run directory", (str(folder),), "is writable from this host")


def _test_scripts(groups: list[Group], site: Site) -> list[CheckResult]:
    """Check the scripts of array jobs with `sbatch --test-only`: "ok", or what sbatch refuses."""
    findings: list[CheckResult] = []
    with tempfile.TemporaryDirectory(prefix="dlperf-slurm-doctor-") as folder:
        for group in groups:
            path = Path(folder) / "job.sbatch"
            scripts = render_scripts([group], site, "doctor", Path(folder))
            path.write_text(scripts[f"scripts/{group.group_id}.sbatch"], encoding="utf-8")
            try:
                slurm_client.run_client(["sbatch", "--test-only", str(path)], inherit=site.inherit)
            except SchedulerError as error:
                findings.append(_describe_refusal(str(error)).at(group.group_id))
    if not findings and groups:
        return [CheckResult("ok", "sbatch --test-only", (), f"scripts accepted: {len(groups)}")]
    return merge_places(findings)


def _describe_refusal(words: str) -> CheckResult:
    """Return the check result for a script that sbatch refused.

    Undecided if sbatch may accept it later; `words` is its message.
    """
    if is_limit_that_passes(words) or is_no_answer(words):
        remedy = "wait until other jobs of yours end: `squeue --me`"
        remedy = "run `scontrol ping`, then doctor again" if is_no_answer(words) else remedy
        return CheckResult("undecided", "sbatch --test-only", (), words, remedy)
    if slurm_client.EXPIRED_TOKEN in words:
        return make_fault("sbatch --test-only", words, "set SLURM_JWT to a new token")
    remedy = "check partition, account, constraint and directives in the site file; "
    remedy += f"to see the job script: `{COMMAND} render`"
    return make_fault("sbatch --test-only", words, remedy, "sbatch")
