"""The commands about a site: `site init` writes its file, `doctor` checks it down to the ranks."""

import argparse
import dataclasses
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from dlperf_slurm.cli.options import (
    add_actions,
    add_command,
    add_json_option,
    add_results_option,
    add_site_options,
)
from dlperf_slurm.cli.output import only_result, print_json, say
from dlperf_slurm.cli.staging import load_plan
from dlperf_slurm.errors import InputError, SchedulerError, SiteCheckError
from dlperf_slurm.program import COMMAND

if TYPE_CHECKING:
    from dlperf_slurm.checks.doctor.finding import CheckResult
    from dlperf_slurm.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the commands `site init` and `doctor` to the parser."""
    actions = add_actions(commands, "site")
    text = "write a site file from what Slurm reports about this cluster"
    action = add_command(actions, "init", run_site_init, text)
    action.add_argument(
        "file",
        nargs="?",
        type=Path,
        help="site file to write (default: site_configs/CLUSTER.toml, the default of --site)",
    )
    action.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        help="device that ranks use (default: cuda if nodes have GPUs, else cpu)",
    )

    command = add_command(commands, "doctor", run_doctor)
    command.add_argument(
        "matrix", nargs="?", type=Path, help="matrix file; default: quickstart.toml of this package"
    )
    command.add_argument(
        "--max-wait",
        type=float,
        default=10.0,
        metavar="MINUTES",
        help="how long the probe job may be PENDING (default: 10)",
    )
    add_json_option(command)
    add_site_options(command)
    add_results_option(command)


def run_site_init(options: argparse.Namespace) -> None:
    """Survey the cluster, write a site file for it, and print the file's name.

    Raises SchedulerError if no cluster answers, InputError if the file exists already.
    """
    from dlperf_slurm import slurm_client
    from dlperf_slurm.files.writing import write_file
    from dlperf_slurm.provision.sites.login_node import find_tools
    from dlperf_slurm.provision.sites.site_file import write_site_file
    from dlperf_slurm.provision.sites.survey import survey_cluster

    cluster = slurm_client.find_shell_cluster(os.environ)
    for line in slurm_client.describe_clusters(os.environ, cluster):
        say(line)
    survey = survey_cluster(cluster)
    if not survey.cluster_name and not survey.partitions:
        raise SchedulerError(
            "\n".join(survey.problems) + "\n"
            f"On a machine without Slurm: {COMMAND} doctor --site local"
        )
    if options.file is None and not survey.cluster_name:
        raise InputError(
            "the name of this cluster is unknown; give the FILE to write as an argument"
        )
    path = options.file or Path("site_configs") / f"{survey.cluster_name}.toml"
    if path.exists():
        raise InputError(
            f"{path}: already exists, and was not changed; move it away, or name another FILE"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, write_site_file(survey, find_tools(), options.device).encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error}") from error
    print(path)
    site = f" --site {path}" if options.file else ""
    print(f"Next: {COMMAND} doctor{site}")


def run_doctor(options: argparse.Namespace) -> None:
    """Check a site, and print a line for each check.

    Raises SiteCheckError if a check failed or could not be decided.
    """
    findings: list[CheckResult] = []
    try:
        with only_result(options.json):
            _examine(options, findings)
    finally:
        if options.json:
            print_json([dataclasses.asdict(finding) for finding in findings])


def _examine(options: argparse.Namespace, findings: "list[CheckResult]") -> None:
    """Run the checks of `doctor`; print each result and append it to `findings`."""
    from dlperf_slurm.checks.doctor import examine
    from dlperf_slurm.config.folders import find_resource_dir
    from dlperf_slurm.config.site import explain_choice
    from dlperf_slurm.slurm_client import is_slurm_here

    if options.matrix is None:
        options.matrix = find_resource_dir("matrices") / "quickstart.toml"
    say(f"matrix {options.matrix}")
    say(f"site {explain_choice(options.site)}")
    _, loaded, plan, *_ = load_plan(options, must_reach_cluster=True)
    for left_out in dict.fromkeys(left_out.reason for left_out in plan.left_out):
        say(f"cases left out: {left_out}")
    if not plan.groups:
        raise InputError(
            f"{options.matrix}: site {loaded.name} can run no case of this matrix, see above"
        )
    for finding in examine(plan, loaded, options.results, 60 * options.max_wait, say):
        say(str(finding))
        findings.append(finding)
    failed = [finding for finding in findings if not finding.is_ok]
    if failed:
        faults = sum(finding.status == "fault" for finding in failed)
        counts = [f"{faults} failed"] * (faults > 0)
        counts += [f"{len(failed) - faults} undecided"] * (len(failed) > faults)
        raise SiteCheckError(f"checks: {', '.join(counts)}; see above")
    site = options.site or ("" if is_slurm_here() else loaded.name)
    chosen = ["--site", site] if site else []
    say(
        f"All checks passed. Next: {COMMAND} {shlex.join(['submit', str(options.matrix), *chosen])}"
    )
