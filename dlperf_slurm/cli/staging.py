"""Plan the matrix and site that the options name, and stage a run directory."""

import argparse
import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.output import say, warn
from dlperf_slurm.errors import EnvironmentMissingError, InputError, SchedulerError
from dlperf_slurm.program import COMMAND

# how long a submission with `--wait` asks a controller that does not answer
RETRY_SECONDS = 900.0
_UNITS = {"s": 1, "min": 60, "h": 3600}

if TYPE_CHECKING:
    from dlperf_slurm.config.site import LoadedSite
    from dlperf_slurm.jobs.plan import PlannedMatrix
    from dlperf_slurm.jobs.run_directory import Run


def load_plan(
    options: argparse.Namespace, must_reach_cluster: bool, nodes: Sequence[str] = ()
) -> "PlannedMatrix":
    """Load the matrix and the site that the options name, and plan the run.

    With `nodes`, plan a sweep over them. Raises InputError for mistakes in the files;
    SchedulerError if `must_reach_cluster` is set and the cluster does not answer.
    """
    from dlperf_slurm.config.site import load_site
    from dlperf_slurm.jobs.plan import PlannedMatrix, get_max_array_size, resolve
    from dlperf_slurm.jobs.profiles import mark_profiled
    from dlperf_slurm.matrix.expand import expand_matrix
    from dlperf_slurm.matrix.file import read_matrix, split_assignments

    if not options.matrix.exists():
        near = options.matrix.with_suffix(".toml")
        remedy = f"did you mean {near}?" if near.exists() else f"copy the examples: {COMMAND} init"
        raise InputError(f"{options.matrix}: no such file; {remedy}")
    of_matrix, of_site = split_assignments(options.set)
    file = read_matrix(options.matrix, of_matrix)
    expansion = expand_matrix(file)
    if getattr(options, "profile", None):
        expansion = mark_profiled(expansion, options.profile, options.only)
    elif getattr(options, "only", None):
        raise InputError("--only: allowed only with --profile; it selects the cases to profile")
    loaded = load_site(options.site, file.toml, of_site)
    if file.matrix.scripts:
        # imports Jinja2
        from dlperf_slurm.jobs.task_tables import check_commands

        check_commands(file, expansion.cases, loaded.site.device)
    max_array_size = get_max_array_size(loaded.site, must_reach_cluster)
    plan = resolve(expansion, loaded.site, max_array_size, nodes)
    if any(site.template for site in plan.sites.values()):
        # imports Jinja2
        from dlperf_slurm.jobs.templates import check_templates

        check_templates(plan.sites)
    return PlannedMatrix(file, loaded, plan, nodes=nodes)


def check_matrix(
    options: argparse.Namespace, is_to_run: bool, nodes: Sequence[str] = ()
) -> "PlannedMatrix":
    """Check the matrix and site that the options name, as a submission does, without writing files.

    `nodes` are those of a sweep. Raises InputError if the site can run none of the cases. If the
    run is to start now, also EnvironmentMissingError; InputError if this machine cannot end a case
    within its time limit or if --within is used on a cluster; SchedulerError if the cluster does
    not answer or, without --unchecked, could never run a job. Otherwise a missing environment is a
    warning.
    """
    from dlperf_slurm.cli.estimates import describe_local_run
    from dlperf_slurm.jobs.plan import list_missing_environments

    def load() -> "PlannedMatrix":
        return load_plan(options, is_to_run, nodes)

    if is_to_run and options.wait:
        from dlperf_slurm.scheduler.submitter import ask_until_answered

        # a cluster that does not answer is asked again
        matrix = ask_until_answered(load, RETRY_SECONDS, say)
    else:
        matrix = load()
    loaded, plan = matrix.loaded, matrix.plan
    if is_to_run and options.within:
        matrix = matrix._replace(within_seconds=parse_duration(options.within, "--within"))
        if loaded.site.scheduler != "local":
            raise InputError(
                f"--within is only for runs without a scheduler, and site {loaded.name} has one; "
                "use fewer repeats: --set protocol.repeats=3"
            )
    if not plan.groups:
        reasons = dict.fromkeys(left_out.reason for left_out in plan.left_out)
        raise InputError(
            f"{options.matrix}: site {loaded.name} can run no case of the matrix:\n  "
            + "\n  ".join(reasons)
        )
    missing = list_missing_environments(plan.sites)
    if missing and is_to_run:
        raise EnvironmentMissingError("\n".join(missing))
    for line in missing:
        warn(line)
    if is_to_run and options.exclude_bad_nodes:
        matrix = matrix._replace(loaded=leave_out_bad_nodes(matrix, options.results))
    if is_to_run and not options.unchecked:
        _check_requests(matrix)
    if is_to_run and loaded.site.scheduler == "local":
        for line in describe_local_run(matrix, options):
            say(line)
    return matrix


def parse_duration(text: str, option: str) -> float:
    """Parse "90s", "5min" or "1.5h" into seconds; raises InputError, which names the option."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?) ?(s|min|h)", text.strip(), re.ASCII)
    if found is None or not float(found[1]):
        raise InputError(f"{option}: {text!r} is not a duration, such as 90s, 5min or 1h")
    return float(found[1]) * _UNITS[found[2]]


def check_interleaving(first: "PlannedMatrix", second: "PlannedMatrix") -> None:
    """Raise InputError unless two runs can be measured in turns (--interleave).

    Both need the same scheduler and cluster and, on Slurm, the same number of blocks, at least 2:
    array jobs of a run that wait for each other, and between which the runs take turns. On site
    `local`, repeats take turns.
    """
    from dlperf_slurm.jobs.plan import count_blocks

    sites = [matrix.loaded.site for matrix in (first, second)]
    if len({(site.scheduler, site.clusters) for site in sites}) > 1:
        raise InputError(
            "--interleave: both matrices must run on the same cluster, but their settings "
            "`scheduler` or `clusters` differ"
        )
    counts = [
        max(count_blocks(case, matrix.loaded.site) for case in matrix.plan.cases)
        for matrix in (first, second)
    ]
    if sites[0].scheduler == "slurm" and (counts[0] != counts[1] or counts[0] == 1):
        raise InputError(
            "--interleave alternates array jobs (blocks) of the matrices, so both need the same "
            f"number of blocks, at least 2 (`compare` needs 6), but {first.file.toml.label} has "
            f"{counts[0]} and {second.file.toml.label} has {counts[1]}: --set protocol.blocks=6"
        )


def stage_matrices(options: argparse.Namespace, matrices: "Sequence[PlannedMatrix]") -> "list[Run]":
    """Write a run directory, with its scripts, for a checked matrix, or for two to interleave.

    First deletes incomplete run directories that killed submissions left, and prints their paths.
    """
    from dlperf_slurm.jobs.partial_runs import remove_leftovers
    from dlperf_slurm.jobs.stage import make_run_id, stage_run

    for path in remove_leftovers(options.results):
        say(f"Removed {path}, an incomplete run directory of a submission that was killed")
    run_ids = [make_run_id(matrix.file.name, matrix.loaded.name) for matrix in matrices]
    interleaved = run_ids if len(run_ids) > 1 else ()
    return [
        stage_run(options.results, matrix, sys.argv, run_id, interleaved)
        for run_id, matrix in zip(run_ids, matrices)
    ]


def leave_out_bad_nodes(matrix: "PlannedMatrix", results: Path) -> "LoadedSite":
    """Return the site with `--exclude` for its bad nodes; unchanged if too few nodes would be left.

    `list_bad_nodes` says which nodes are bad.
    """
    from dlperf_slurm.jobs.failed_nodes import describe_too_few, exclude_nodes

    loaded = matrix.loaded
    nodes = list_bad_nodes(results, loaded.name, loaded.site.clusters or "")
    needed = max(group.topology.nodes for group in matrix.plan.groups)
    site = exclude_nodes(loaded.site, nodes, needed)
    if nodes and site is loaded.site:
        warn(describe_too_few(site, needed))
    return dataclasses.replace(loaded, site=site)


def list_bad_nodes(results: Path, site_name: str, clusters: str) -> list[str]:
    """Print and return the bad nodes of a site, according to the runs in `results`.

    Bad are slow nodes, and nodes that failed and since then have neither measured nor been booted;
    nodes that have left the cluster are not returned. `clusters` is the site's setting, or "".
    """
    from dlperf_slurm.jobs.failed_nodes import drop_usable_nodes
    from dlperf_slurm.jobs.run_directory import list_run_ids
    from dlperf_slurm.reports.history_text import describe_node
    from dlperf_slurm.results.history.nodes import read_node_histories
    from dlperf_slurm.results.history.run_cache import read_run_cache

    if not list_run_ids(results):
        return []
    histories = read_node_histories(read_run_cache(results).entries)
    bad = [node for node in histories if node.site_name == site_name and node.is_bad]
    for node in bad:
        say(f"bad {describe_node(node)}")
    failed_at = {node.node: "" if node.slow else node.last_failed_at for node in bad}
    return drop_usable_nodes(failed_at, clusters, say)


def _check_requests(matrix: "PlannedMatrix") -> None:
    """Check what the jobs request as `doctor` does, without probe jobs.

    Raises SchedulerError for jobs that sbatch would refuse or that would be PENDING for ever; other
    problems are printed as warnings.
    """
    from dlperf_slurm.checks.doctor.static_checks import check_requests

    findings = check_requests(matrix.plan, matrix.loaded.site)
    # a fault without a decider, such as a missing srun plug-in, does not stop the submission
    faults = [str(f) for f in findings if f.status == "fault" and f.decider]
    for finding in findings:
        if str(finding) not in faults:
            warn(str(finding))
    if faults:
        raise SchedulerError(
            "\n".join(faults)
            + "\nNothing was submitted. To submit without these checks: --unchecked"
        )
