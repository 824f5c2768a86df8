"""A group on its site -> the values of the parts of its script, one for each framework.

Before the ranks of a framework start, each node may do work: setup, checks and copies of data.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.folders import CUDA
from dlperf_slurm.config.overrides import JobKind, get_job_kind
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import DALI, FOLDER
from dlperf_slurm.contract.nodes import NodeChecks, NodeWork
from dlperf_slurm.jobs.grouping import ArrayTask, Group
from dlperf_slurm.jobs.launch_command import list_starting_words, make_container_parts, make_starter
from dlperf_slurm.jobs.profiles import PROFILED_REPEAT, PROFILERS, STARTER_PREFIX, TORCH
from dlperf_slurm.launchers import ShellTemplate
from dlperf_slurm.worker.rendezvous import MPI, TORCHRUN, RendezvousSettings

PLAIN_FRAMEWORK_TEMPLATE = "frameworks/framework.sh.j2"
# Python of the batch host for jobs in a container, unless the site names another Python
HOST_PYTHON = "python3"
# the worker subcommand that each rank runs
RUN_COMMAND = ("run",)
# the starter function of an external script, by its setting `launch`
SCRIPT_STARTERS = {"single": "script", "per-rank": "script_ranks"}
_VARIABLE = re.compile(r"\$(\w+)", re.ASCII)


@dataclass(frozen=True)
class FrameworkScript:
    """The template values of one framework's part of a job script: a set of bash functions.

    `name` is the suffix of their names. The first of `templates` that exists writes them.
    `host_python` is set only if the batch host uses another Python than the ranks; else
    `own_python` may be the path of the environment's. For a container, `image_arguments` are those
    of `worker.image_digest`: the image, and the command that prints its digest. `has_secret`: ranks
    connect without MPI and need a shared secret. `search_command` is set if array tasks search for
    their batch size, `node_command` if nodes run a setup or checks before the ranks;
    `script_commands` has the command of each function that runs an external script,
    `profile_commands` that of the ranks under each profiler.
    """

    name: str
    templates: Sequence[str]
    setup: Sequence[str]
    modules: Sequence[str]
    host_python: Optional[str]
    container_runtime: Optional[str]
    image_arguments: Sequence[str]
    bin_dir: Optional[str]
    own_python: Optional[str]
    env: Sequence[tuple[str, str]]
    has_secret: bool
    has_torchrun: bool
    launch_command: Sequence[str]
    search_command: Optional[Sequence[str]]
    script_command: Sequence[str]
    script_commands: Sequence[tuple[str, Sequence[str]]]
    conclude_command: Sequence[str]
    has_gpus: bool
    profile_command: Sequence[str]
    profile_commands: Sequence[tuple[str, Sequence[str]]]
    node_command: Sequence[str] = ()


def find_starter(task: ArrayTask) -> str:
    """Return the bash function that starts an array task, such as "launch" or "search".

    Its full name in the script ends with the framework, such as `launch_pytorch`.
    """
    if task.case.script_table is not None:
        return SCRIPT_STARTERS[task.case.script_table.launch]
    if task.case.profiler and task.repeat == PROFILED_REPEAT:
        return f"{STARTER_PREFIX}{task.case.profiler}"
    return "search" if task.case.axes.has_batch_search else "launch"


def make_framework_scripts(
    group: Group,
    sites: Mapping[JobKind, Site],
    common: Site,
    run_dir: Path,
    node_file: Optional[str],
    worker_command: Sequence[str] = RUN_COMMAND,
) -> dict[JobKind, FrameworkScript]:
    """Return the template values of each framework's part in an array job's script, by kind of job.

    `sites` has the site resolved for each kind, `common` the settings of the whole script,
    `node_file` is the path of the file with the setup and checks of nodes (None for none).
    `worker_command` is the worker subcommand of ranks. Raises InputError if a value of the site is
    not a valid template, or a required one is missing.
    """
    folders = [str(run_dir).replace("${", "$${"), *list_data_folders(group, common)]
    starters = {(get_job_kind(task.case.axes), find_starter(task)) for task in group.array_tasks}
    scripts = {
        kind: make_framework_script(
            kind,
            site,
            worker_command,
            {starter for of, starter in starters if of.framework == kind.framework},
            common,
            folders,
            node_file,
        )
        for kind, site in sites.items()
    }
    for kind, script in scripts.items():
        same = [scripts[other] for other in scripts if other.framework == kind.framework]
        if any(replace(other, name=script.name) != script for other in same):
            # the name becomes part of the names of bash functions
            scripts[kind] = replace(
                script, name=f"{kind.framework}_{re.sub(r'[^A-Za-z0-9]', '_', kind.gradient_sync)}"
            )
    return scripts


def make_framework_script(
    kind: JobKind,
    site: Site,
    worker_command: Sequence[str],
    starters: Set[str],
    common: Site,
    folders: Sequence[str],
    node_file: Optional[str] = None,
) -> FrameworkScript:
    """Return the template values of one framework's part in a job script.

    `site` is resolved for this kind of job. `worker_command` is the worker subcommand of ranks.
    `starters` are the functions that its array tasks need (`find_starter`). `common.env` is
    exported by the script for all its frameworks. `folders` are those that ranks read and write;
    the job expands `${NAME}` in them. `node_file` is the path of the node work.
    """
    chosen = site.find_environment(kind.framework)
    worker = ["-m", "dlperf_slurm.worker"]
    is_on_host = not chosen.host_python and not chosen.container
    host_python = chosen.host_python or (HOST_PYTHON if chosen.container else chosen.python)
    on_host = [host_python, *worker]
    container = make_container_parts(site, kind, folders)
    start = make_starter(kind, site, container)
    verb, *options = worker_command
    traced = {TORCH: "trace"}
    script_commands = {"script": ["bash"], "script_ranks": start(["bash"])}
    chosen_network = site.rendezvous
    rendezvous = RendezvousSettings(
        site.ranks, chosen_network.host_suffix, chosen_network.interface
    )
    options = [*rendezvous.list_words(), *options]
    own_env = {name: v for name, v in site.env.items() if common.env.get(name) != v}
    return FrameworkScript(
        name=kind.framework,
        templates=(f"frameworks/{kind.framework}.sh.j2", PLAIN_FRAMEWORK_TEMPLATE),
        setup=chosen.setup,
        modules=chosen.modules,
        host_python=None if is_on_host else host_python,
        container_runtime=chosen.container.runtime if chosen.container else None,
        image_arguments=(
            [ShellTemplate(chosen.container.image), *container.digest_command]
            if chosen.container
            else ()
        ),
        bin_dir=f"{chosen.venv}/bin" if chosen.venv else None,
        own_python=(
            f"{chosen.venv}/bin/{chosen.python}"
            if chosen.venv and is_on_host and "/" not in chosen.python
            else None
        ),
        env=sorted({**own_env, **chosen.env}.items()),
        has_secret=site.ranks != MPI,
        has_torchrun=site.starting_launcher == TORCHRUN,
        launch_command=start([chosen.python, *worker, verb, *options]),
        search_command=[*on_host, "search"] if "search" in starters else None,
        script_command=[*on_host, "script"],
        script_commands=[
            (name, command) for name, command in script_commands.items() if name in starters
        ],
        conclude_command=[*on_host, "conclude"],
        has_gpus=site.device == CUDA,
        profile_command=[*on_host, "profile"],
        profile_commands=[
            (tool, start([*words, chosen.python, *worker, traced.get(tool, verb), *options]))
            for tool, words in PROFILERS.items()
            if f"{STARTER_PREFIX}{tool}" in starters
        ],
        node_command=(
            [*list_starting_words(site, kind.topology), *on_host, "node", node_file]
            if node_file
            else ()
        ),
    )


def make_node_work(group: Group, site: Site) -> Optional[NodeWork]:
    """Return the setup, checks and data copies that each node of a group does; None for none."""
    copies = {
        site.find_dataset_path(name): stage_to
        for name in list_dataset_names(group)
        if (stage_to := site.find_dataset(name).stage_to) is not None
    }
    work = NodeWork(
        setup=site.node.setup,
        check=NodeChecks(**site.node.check.model_dump()),
        timeout_seconds=site.node.timeout_seconds,
        copies=copies,
    )
    return work if work.setup or copies or work.check != NodeChecks() else None


def list_dataset_names(group: Group) -> list[str]:
    """List the names of the data sets whose files an array job reads."""
    return sorted(
        {task.case.dataset for task in group.array_tasks if task.case.axes.data in (FOLDER, DALI)}
    )


def list_data_folders(group: Group, site: Site) -> list[str]:
    """List the folders of an array job's data sets, or of their copies on the node.

    They are for words in which the job expands `${NAME}`: variables of copies become `${NAME}`, and
    a `${` in other paths, which is literal, becomes `$${`.
    """
    folders = []
    for name in list_dataset_names(group):
        stage_to = site.find_dataset(name).stage_to
        if stage_to is None:
            folders.append(site.find_dataset_path(name).replace("${", "$${"))
        else:
            folders.append(_VARIABLE.sub(r"${\1}", stage_to))
    return sorted(folders)
