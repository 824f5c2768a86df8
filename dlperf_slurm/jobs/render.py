"""Plan x site -> the text of every script, through Jinja2; pure: same input, same bytes."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

import jinja2

from dlperf_slurm.config.folders import find_resource_dir
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.launchers import Ranks, make_command
from dlperf_slurm.jobs.plan import ArrayTask, Group
from dlperf_slurm.jobs.private_values import PRIVATE_FILE
from dlperf_slurm.jobs.quoting import escape_pattern
from dlperf_slurm.jobs.run_directory import make_job_name
from dlperf_slurm.jobs.sandbox import make_environment

BASE_TEMPLATE = "base.sbatch.j2"
VERIFY_TEMPLATE = "verify.sh.j2"
PLAIN_FRAMEWORK_TEMPLATE = "frameworks/framework.sh.j2"
# the starter of a script, by its `launch`
SCRIPT_STARTERS = {"single": "script", "per-rank": "script_ranks"}

# Before the time limit, for ranks to say where they stand. Slurm may be up to a minute early
# (sbatch(1), --signal), which is too much of a shorter limit.
WARNING_SECONDS = 60
SHORTEST_WARNED_MINUTES = 5
# launches of an array that fail alike, and leave no record, before the others are held
FAILURES_TO_HOLD = 3


@dataclass(frozen=True)
class FrameworkScript:
    """What the script needs to start the ranks of one framework.

    `search_command` is there only where array tasks have to find their batch size,
    `script_commands`, by starter, where they run somebody else's script.
    """

    name: str
    template: str
    setup: Sequence[str]
    modules: Sequence[str]
    bin_dir: Optional[str]
    env: Sequence[tuple[str, str]]
    launch_command: Sequence[str]
    search_command: Optional[Sequence[str]]
    script_command: Sequence[str]
    script_commands: Sequence[tuple[str, Sequence[str]]]
    conclude_command: Sequence[str]


@dataclass(frozen=True)
class JobScript:
    """All values of one sbatch script."""

    job_name: str
    group_id: str
    run_dir: str
    last_array_task_id: int
    array_throttle: Optional[int]
    nodes: int
    devices_per_node: int
    cpus_per_rank: int
    gpu_directive: Optional[str]
    memory_mib_per_node: Optional[int]
    exclusive: bool
    time_limit_minutes: int
    warning_seconds: Optional[int]
    failures_to_hold: int
    who_and_where: Sequence[tuple[str, str]]
    log_pattern: str
    directives: Sequence[str]
    env: Sequence[tuple[str, str]]
    private_file: Optional[str]
    umask: Optional[str]
    frameworks: Sequence[FrameworkScript]


def render_scripts(
    groups: Sequence[Group], site: Site, run_id: str, run_dir: Path
) -> dict[str, str]:
    """Every file under scripts/ as relative path -> text: a script and a task list per group.

    Raises InputError when a value cannot stand where the template puts it, or a template of the
    site's own is missing or wrong.
    """
    environment = make_environment(list_template_dirs(site))
    name = BASE_TEMPLATE if site.template is None else Path(site.template).name
    files: dict[str, str] = {}
    for group in groups:
        try:
            job = make_job_script(group, site, run_id, run_dir, environment)
            text = environment.get_template(name).render(job=job)
        except jinja2.TemplateError as error:
            raise InputError(f"{name}: {type(error).__name__}: {error}") from error
        files[f"scripts/{group.group_id}.sbatch"] = text
        files[f"scripts/{group.group_id}.tasks"] = "".join(
            f"{task.case.axes.framework}\t{task.attempt_dir}\t{find_starter(task)}\n"
            for task in group.array_tasks
        )
    return files


def find_starter(task: ArrayTask) -> str:
    """The function of its framework's template that starts an array task: STARTER_FRAMEWORK."""
    if task.case.script_table is not None:
        return SCRIPT_STARTERS[task.case.script_table.launch]
    return "search" if task.case.axes.has_batch_search else "launch"


def list_template_dirs(site: Site) -> list[Path]:
    """The folder of the site's own template, if it has one, then the package's."""
    own = [] if site.template is None else [Path(site.template).parent]
    return [*own, find_resource_dir("templates")]


def render_verification(
    framework: str, topology: Topology, site: Site, options: Sequence[str], code: Path, folder: Path
) -> str:
    """A script that starts `worker verify` with these options as array tasks start `worker run`."""
    environment = make_environment(list_template_dirs(site))
    command = ["verify", *options]
    script = _make_framework_script(framework, topology, site, environment, command, set())
    return environment.get_template(VERIFY_TEMPLATE).render(
        framework=script,
        cpus_per_rank=site.cpus_per_rank,
        env=_sorted_items(site.env),
        code_dir=str(code),
        attempt_dir=str(folder),
    )


def make_job_script(
    group: Group, site: Site, run_id: str, run_dir: Path, environment: jinja2.Environment
) -> JobScript:
    """The values of one group's script; raises InputError when one cannot stand on its line."""
    asked_for = {
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "reservation": site.reservation,
    }
    starters = {(task.case.axes.framework, find_starter(task)) for task in group.array_tasks}
    return JobScript(
        job_name=make_job_name(run_id, group.group_id),
        group_id=group.group_id,
        run_dir=str(run_dir),
        last_array_task_id=len(group.array_tasks) - 1,
        array_throttle=site.array_throttle,
        nodes=group.topology.nodes,
        devices_per_node=group.topology.devices_per_node,
        cpus_per_rank=site.cpus_per_rank,
        gpu_directive=_make_gpu_directive(site, group.topology.devices_per_node),
        memory_mib_per_node=site.memory_mib_per_node,
        exclusive=site.exclusive,
        time_limit_minutes=group.time_limit_minutes,
        warning_seconds=(
            WARNING_SECONDS if group.time_limit_minutes >= SHORTEST_WARNED_MINUTES else None
        ),
        failures_to_hold=FAILURES_TO_HOLD,
        who_and_where=[(name, value) for name, value in asked_for.items() if value is not None],
        log_pattern=escape_pattern(f"{run_dir}/scripts") + "/%A_%a.log",
        directives=site.directives,
        env=_sorted_items(site.env),
        private_file=PRIVATE_FILE if site.env_from else None,
        umask=f"{site.file_mask:03o}" if site.umask or site.group else None,
        frameworks=[
            _make_framework_script(
                name,
                group.topology,
                site,
                environment,
                ["run"],
                {starter for framework, starter in starters if framework == name},
            )
            for name in group.frameworks
        ],
    )


def _make_gpu_directive(site: Site, devices_per_node: int) -> Optional[str]:
    if site.gpu_request == "none":
        return None
    kind = f"{site.gpu_type}:" if site.gpu_type else ""
    if site.gpu_request == "gres":
        return f"--gres=gpu:{kind}{devices_per_node}"
    return f"--gpus-per-node={kind}{devices_per_node}"


def _make_framework_script(
    name: str,
    topology: Topology,
    site: Site,
    environment: jinja2.Environment,
    worker_command: Sequence[str],
    starters: Set[str],
) -> FrameworkScript:
    chosen = site.find_environment(name)
    templates = [f"frameworks/{name}.sh.j2", PLAIN_FRAMEWORK_TEMPLATE]
    ranks = Ranks(topology, site.cpus_per_rank, site.launcher.mpi, site.launcher.flags)
    worker = [chosen.python, "-m", "dlperf_slurm.worker"]
    on_ranks = make_command(site.launcher.name, ranks, ["bash"])
    script_commands = {"script": ["bash"], "script_ranks": on_ranks}
    return FrameworkScript(
        name=name,
        template=str(environment.select_template(templates).name),
        setup=chosen.setup,
        modules=chosen.modules,
        bin_dir=f"{chosen.venv}/bin" if chosen.venv else None,
        env=_sorted_items(chosen.env),
        launch_command=make_command(site.launcher.name, ranks, [*worker, *worker_command]),
        search_command=[*worker, "search"] if "search" in starters else None,
        script_command=[*worker, "script"],
        script_commands=[
            (name, command) for name, command in script_commands.items() if name in starters
        ],
        conclude_command=[*worker, "conclude"],
    )


def _sorted_items(values: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(values.items())
