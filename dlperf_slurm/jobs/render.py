"""Plan x site -> the text of every job script, by Jinja2; the same input gives the same bytes."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import jinja2

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.nodes import format_node_work
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.framework_script import (
    RUN_COMMAND,
    make_framework_script,
    make_framework_scripts,
    make_node_work,
)
from dlperf_slurm.jobs.grouping import END_SECONDS, Group
from dlperf_slurm.jobs.run_directory import PRIVATE_FILE
from dlperf_slurm.jobs.sandbox import (
    BoundedEnvironment,
    begin_all,
    begin_rendering,
    make_environment,
)
from dlperf_slurm.jobs.sbatch_options import get_warning_seconds, list_directives, list_options
from dlperf_slurm.jobs.task_tables import TaskTables

BASE_TEMPLATE = "base.sbatch.j2"
VERIFY_TEMPLATE = "verify.sh.j2"


def render_scripts(
    groups: Sequence[Group],
    site: Site,
    run_id: str,
    run_dir: Path,
    header: str = "",
    worker_command: Sequence[str] = RUN_COMMAND,
    earlier: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Render all files of these groups (array jobs): text by relative path.

    Each group has a script, a task table, and a node file if its nodes run setup or checks. The
    file of cases and the file of external scripts come first; `earlier` has their present text.
    `header` is the first comment of each script, `worker_command` the worker subcommand of the
    ranks. Raises InputError if a value cannot be quoted where the template uses it, or a template
    of the site is missing or invalid.
    """
    begin_all()
    files: dict[str, str] = {}
    tables = TaskTables(site, run_id, earlier)
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
            environment = _find_environment(*list_template_dirs(common))
            begin_rendering()
            node_path = node_file and f"{run_dir}/{node_file}"
            scripts = make_framework_scripts(
                group, sites, common, run_dir, node_path, worker_command
            )
            text = environment.get_template(name).render(
                header=header,
                options=list_options(group, common, run_id, run_dir),
                directives=list_directives(group, common),
                umask=f"{common.file_mask:03o}" if common.umask or common.group else None,
                run_dir=str(run_dir),
                group_id=group.group_id,
                arrays=common.arrays,
                tasks_per_job=group.tasks_per_job,
                last_array_task_id=len(group.array_tasks) - 1,
                limit_seconds=60 * group.time_limit_minutes,
                warning_seconds=get_warning_seconds(group.time_limit_minutes),
                end_seconds=END_SECONDS,
                private_file=PRIVATE_FILE if common.env_from else None,
                frameworks=list({script.name: script for script in scripts.values()}.values()),
                **_list_preparation(common),
            )
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


@lru_cache(maxsize=16)
def _find_environment(*template_dirs: Path) -> BoundedEnvironment:
    """Return the Jinja2 environment for templates in these folders; files that changed are read."""
    return make_environment(template_dirs)


def render_verification(
    kind: JobKind, site: Site, options: Sequence[str], run_dir: Path, attempt_dir: Path
) -> str:
    """Return a job script that runs `worker verify` with the launch command of array tasks.

    `run_dir` contains the frozen code; `attempt_dir`, below it, the case. `options` are those of
    `worker verify`.
    """
    site = site.resolve(kind)
    environment = _find_environment(*list_template_dirs(site))
    command = ["verify", *options]
    script = make_framework_script(
        kind, site, command, set(), site, [str(run_dir).replace("${", "$${")]
    )
    begin_rendering()
    return environment.get_template(VERIFY_TEMPLATE).render(
        framework=script,
        run_dir=str(run_dir),
        attempt_dir=str(attempt_dir),
        **_list_preparation(site),
    )


def _list_preparation(site: Site) -> dict[str, object]:
    """Return the template values of what a script does before it starts a framework, by name."""
    return {
        "cpus_per_rank": site.cpus_per_rank,
        "setup": site.setup,
        "modules": site.modules,
        "after_modules": site.after_modules,
        "env": sorted(site.env.items()),
    }


def get_common_site(sites: Sequence[Site]) -> Site:
    """Return a site for a whole script: its `env` has the variables that all kinds of job share.

    `sites` are resolved for each kind. The other settings of a script are equal for all kinds of
    job in a group.
    """
    shared = set.intersection(*(set(site.env.items()) for site in sites))
    return sites[0].model_copy(update={"env": dict(shared)})
