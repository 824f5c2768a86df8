"""Plan x site -> the text of every job script, by Jinja2; the same input gives the same bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Optional

import jinja2

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.nodes import format_node_work
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.framework_script import (
    RUN_COMMAND,
    FrameworkScript,
    make_framework_script,
    make_framework_scripts,
    sort_items,
)
from dlperf_slurm.jobs.grouping import END_SECONDS, Group, get_warning_seconds
from dlperf_slurm.jobs.node_prolog import make_node_work
from dlperf_slurm.jobs.quoting import escape_pattern
from dlperf_slurm.jobs.resources import (
    list_account_options,
    list_container_directives,
    make_gpu_directive,
    make_task_directives,
)
from dlperf_slurm.jobs.run_directory import PRIVATE_FILE, make_job_name
from dlperf_slurm.jobs.sandbox import (
    BoundedEnvironment,
    begin_all,
    begin_rendering,
    make_environment,
)
from dlperf_slurm.jobs.task_tables import TaskTables
from dlperf_slurm.jobs.templating import render_directives

BASE_TEMPLATE = "base.sbatch.j2"
VERIFY_TEMPLATE = "verify.sh.j2"


@dataclass(frozen=True)
class JobScript:
    """The template values of one sbatch script."""

    job_name: str
    group_id: str
    run_dir: str
    header: str
    last_array_task_id: int
    last_element: Optional[int]
    tasks_per_job: Optional[int]
    array_throttle: Optional[int]
    nodes: int
    devices_per_node: int
    cpus_per_rank: int
    task_directives: Sequence[str]
    gpu_directive: Optional[str]
    memory_mib_per_node: Optional[int]
    exclusive: bool
    job_minutes: int
    job_warning_seconds: int
    time_limit_minutes: int
    end_seconds: int
    warning_seconds: int
    who_and_where: Sequence[tuple[str, str]]
    log_pattern: str
    directives: Sequence[str]
    setup: Sequence[str]
    modules: Sequence[str]
    after_modules: Sequence[str]
    env: Sequence[tuple[str, str]]
    private_file: Optional[str]
    umask: Optional[str]
    frameworks: Sequence[FrameworkScript]


def render_scripts(
    groups: Sequence[Group],
    site: Site,
    run_id: str,
    run_dir: Path,
    header: str = "",
    worker_command: Sequence[str] = RUN_COMMAND,
    earlier: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Render all files of the groups: text by relative path.

    Each group has a script, a task table, and a node file if its nodes run setup or checks. The
    file of cases and the file of external scripts come first; `earlier` has their present text.
    `header` is the first comment of each script, `worker_command` the worker subcommand of the
    ranks. Raises InputError if a value cannot be quoted where the template uses it, or a template
    of the site is missing or invalid.
    """
    begin_all()
    files: dict[str, str] = {}
    tables = TaskTables(site, run_id, earlier)
    environments: dict[Optional[str], BoundedEnvironment] = {}
    for group in groups:
        sites = site.resolve_each(group.kinds)
        common = get_common_site(list(sites.values()))
        work = make_node_work(group, common)
        node_file = None
        if work is not None:
            node_file = f"scripts/{group.group_id}.node.json"
            files[node_file] = format_node_work(work)
        name = BASE_TEMPLATE if common.template is None else Path(common.template).name
        try:
            if common.template not in environments:
                environments[common.template] = _find_environment(common)
            environment = environments[common.template]
            begin_rendering()
            scripts = make_framework_scripts(
                group,
                sites,
                common,
                environment,
                run_dir,
                node_file and f"{run_dir}/{node_file}",
                worker_command,
            )
            job = make_job_script(group, common, scripts, run_id, run_dir, header)
            text = environment.get_template(name).render(job=job)
        except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError) as error:
            # the last three are raised by expressions of the template
            raise InputError(f"{name}: {type(error).__name__}: {error}") from error
        except RecursionError as error:
            raise InputError(f"{name}: extends or includes itself in a loop") from error
        files[f"scripts/{group.group_id}.sbatch"] = text
        names = {kind: script.name for kind, script in scripts.items()}
        files[f"scripts/{group.group_id}.tasks"] = tables.make_table(group, names, sites)
    # in the order in which they are written: task tables point into the first files
    return {**tables.files, **files}


def list_template_dirs(site: Site) -> list[Path]:
    """List the folders with templates: that of the site's own template, then the package's."""
    own = [] if site.template is None else [Path(site.template).parent]
    return [*own, find_resource_dir("templates")]


def _find_environment(site: Site) -> BoundedEnvironment:
    """Return the Jinja2 environment for a site's templates; cached for the package's own."""
    folders = list_template_dirs(site)
    return _share_environment(*folders) if site.template is None else make_environment(folders)


@cache
def _share_environment(*template_dirs: Path) -> BoundedEnvironment:
    return make_environment(template_dirs)


def render_verification(
    kind: JobKind, site: Site, options: Sequence[str], run_dir: Path, attempt_dir: Path
) -> str:
    """Return a job script that runs `worker verify` with the launch command of array tasks.

    `run_dir` contains the frozen code; `attempt_dir`, below it, the case. `options` are those of
    `worker verify`.
    """
    site = site.resolve(kind)
    environment = _find_environment(site)
    command = ["verify", *options]
    script = make_framework_script(
        kind, site, environment, command, set(), site, [str(run_dir).replace("${", "$${")]
    )
    begin_rendering()
    return environment.get_template(VERIFY_TEMPLATE).render(
        framework=script,
        cpus_per_rank=site.cpus_per_rank,
        setup=site.setup,
        modules=site.modules,
        after_modules=site.after_modules,
        env=sort_items(site.env),
        run_dir=str(run_dir),
        attempt_dir=str(attempt_dir),
    )


def get_common_site(sites: Sequence[Site]) -> Site:
    """Return a site for a whole script: its `env` has the variables that all kinds of job share.

    `sites` are resolved for each kind. The other settings of a script are equal for all kinds of
    job in a group.
    """
    shared = set.intersection(*(set(site.env.items()) for site in sites))
    return sites[0].model_copy(update={"env": dict(shared)})


def make_job_script(
    group: Group,
    site: Site,
    scripts: Mapping[JobKind, FrameworkScript],
    run_id: str,
    run_dir: Path,
    header: str,
) -> JobScript:
    """Return the template values of a group's script; raise InputError for an invalid directive.

    `header` is the first comment.
    """
    # a plain job counts as element 0 of an array
    log_name = "%A_%a" if site.arrays else "%j_0"
    # equal for all kinds of job in a group
    container_directives = list_container_directives(site, next(iter(scripts)))
    return JobScript(
        job_name=make_job_name(run_id, group.group_id),
        group_id=group.group_id,
        run_dir=str(run_dir),
        header=header,
        last_array_task_id=len(group.array_tasks) - 1,
        last_element=group.job_count - 1 if site.arrays else None,
        tasks_per_job=group.tasks_per_job,
        array_throttle=1 if group.node else site.array_throttle,
        nodes=group.topology.nodes,
        devices_per_node=group.topology.devices_per_node,
        cpus_per_rank=site.cpus_per_rank,
        task_directives=make_task_directives(site, group.topology),
        gpu_directive=make_gpu_directive(site, group.topology.devices_per_node),
        memory_mib_per_node=site.memory_mib_per_node,
        exclusive=site.exclusive,
        job_minutes=group.job_minutes,
        job_warning_seconds=get_warning_seconds(group.job_minutes),
        time_limit_minutes=group.time_limit_minutes,
        end_seconds=END_SECONDS,
        warning_seconds=get_warning_seconds(group.time_limit_minutes),
        who_and_where=list_account_options(site),
        log_pattern=f"{escape_pattern(f'{run_dir}/scripts')}/{log_name}.log",
        directives=[
            *container_directives,
            *render_directives(site, group.topology),
            *[f"--nodelist={group.node}"] * bool(group.node),
        ],
        setup=site.setup,
        modules=site.modules,
        after_modules=site.after_modules,
        env=sort_items(site.env),
        private_file=PRIVATE_FILE if site.env_from else None,
        umask=f"{site.file_mask:03o}" if site.umask or site.group else None,
        frameworks=list({script.name: script for script in scripts.values()}.values()),
    )
