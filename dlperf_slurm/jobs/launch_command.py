"""A kind of job on its site, and a program -> the command line that starts it on ranks or nodes.

The order is launcher, the site's wrapper, container, `env` with the variables of ranks, program.
Values of a site file may be Jinja2 templates, such as `--nodes={{ nodes }}`, whose `nodes` comes
from the topology of the job.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence

from dlperf_slurm.config.folders import CUDA
from dlperf_slurm.config.job_settings import Environment
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import Site
from dlperf_slurm.containers import RUNTIMES, ContainerOptions, ContainerStart
from dlperf_slurm.contract.case import ENERGY_VARIABLE
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import InputError
from dlperf_slurm.launchers import LAUNCHERS, NO_MPI, RankLayout, ShellTemplate
from dlperf_slurm.worker.rendezvous import MPI

# variables by which Gloo and NCCL get their network interface
INTERFACE_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
# per-task requests of sbatch, which srun would apply to the single process per node
_OF_RANKS = ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND")


def make_starter(
    kind: JobKind, site: Site, container: ContainerOptions
) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that makes the command line that starts a program on all ranks.

    The function gets the program's command line and puts the launcher's before it. `container` is
    that of `make_container_parts`. Raises InputError if a value of the site is not a valid
    template.
    """
    chosen = site.find_environment(kind.framework)
    values = list_job_values(site, kind)
    energy = {ENERGY_VARIABLE: site.node.energy_command} if site.node.energy_command else {}
    rank_env = {**energy, **_choose_interface(site, chosen), **site.rank_env, **chosen.rank_env}
    assignments = [ShellTemplate(f"{name}={value}") for name, value in sorted(rank_env.items())]
    where = f"environments.{kind.framework}"
    ranks = RankLayout(
        topology=kind.topology,
        cpus_per_rank=site.cpus_per_rank,
        mpi=site.launcher.mpi if site.ranks == MPI else NO_MPI,
        flags=[
            *render_words(site.launcher.flags, values, "launcher.flags"),
            *container.launcher_flags,
        ],
        wrapper=[*render_words(chosen.wrapper, values, f"{where}.wrapper"), *container.wrapper],
        command=_split_command(site.launcher.command, values),
        by_node=site.task_request == "ntasks-per-node",
        host_suffix=site.rendezvous.host_suffix,
        has_gpus=site.device == CUDA,
    )
    before = ["env", *assignments] if assignments else []
    launcher = LAUNCHERS[site.starting_launcher]
    return lambda program: launcher.make_command(ranks, [*before, *program])


def list_starting_words(site: Site, topology: Topology) -> Sequence[str]:
    """Return the words that start a program once per node, such as those of srun.

    They precede its command line. On Slurm, srun gets all resources of the node, also if another
    launcher starts the ranks; [] for the local scheduler.
    """
    if site.scheduler == "local":
        return []
    # a step of one task gets one GPU of a job that asks for GPUs per task, unless it asks for more
    is_by_task = any(line.startswith("--gpus-per-task") for line in site.directives)
    return [
        "env",
        *(word for name in _OF_RANKS for word in ("-u", name)),
        "srun",
        f"--nodes={topology.nodes}",
        f"--ntasks={topology.nodes}",
        "--ntasks-per-node=1",
        f"--cpus-per-task={site.cpus_per_rank}",
        *([f"--gres=gpu:{topology.devices_per_node}"] if is_by_task else []),
        "--mpi=none",
        # a failed node must not end the checks of the others
        "--kill-on-bad-exit=0",
    ]


def _choose_interface(site: Site, chosen: Environment) -> dict[str, str]:
    """Return the environment variables by which Gloo and NCCL use the site's network interface.

    Variables that the site or the framework's environment `chosen` sets itself are left out.
    """
    interface = site.rendezvous.interface
    own = {*site.env, *site.env_from, *chosen.env}
    return {name: interface for name in INTERFACE_VARIABLES if interface and name not in own}


def _split_command(text: str, values: Mapping[str, object]) -> list[str]:
    filled = render_word(text, values, "launcher.command")
    try:
        return [ShellTemplate(word) for word in shlex.split(filled)]
    except ValueError as error:
        raise InputError(f"launcher.command: {filled!r}: {error}") from error


def make_container_parts(
    site: Site, kind: JobKind, folders: Sequence[str] = ()
) -> ContainerOptions:
    """Return the options and command prefix of a framework's container; empty without a container.

    `folders` are mounted, `${NAME}` expanded. Raises InputError for a bad template or launcher.
    """
    chosen = site.find_environment(kind.framework)
    container = chosen.container
    if container is None:
        return ContainerOptions()
    key = f"environments.{kind.framework}.container"
    values = list_job_values(site, kind)
    names = {*site.env, *site.rank_env, *site.env_from, *chosen.env, *chosen.rank_env}
    parts = RUNTIMES[container.runtime](
        ContainerStart(
            image=container.image,
            options=render_words(container.options, values, f"{key}.options"),
            folders=folders,
            mounts=render_words(container.mounts, values, f"{key}.mounts"),
            has_entrypoint=container.entrypoint,
            env_names=sorted(names),
        )
    )
    if parts.launcher_flags and not LAUNCHERS[site.launcher.name].uses_srun:
        raise InputError(
            f"{key}.runtime: {container.runtime!r} is an option of srun, but the launcher "
            f"is {site.launcher.name!r}; use launcher 'srun', or another runtime"
        )
    return ContainerOptions(
        parts.directives,
        [ShellTemplate(word) for word in parts.launcher_flags],
        [ShellTemplate(word) for word in parts.wrapper],
        [ShellTemplate(word) for word in parts.digest_command],
    )


def list_shape_values(site: Site, topology: Topology) -> dict[str, object]:
    """Return what templates in `directives` may use, such as `nodes` and `world_size`, by name."""
    return {
        "topology": str(topology),
        "nodes": topology.nodes,
        "devices_per_node": topology.devices_per_node,
        "world_size": topology.world_size,
        "cpus_per_rank": site.cpus_per_rank,
    }


def list_job_values(site: Site, kind: JobKind) -> dict[str, object]:
    """Return the values that settings of the launch command may use, by name.

    Those of `list_shape_values`, and `framework` and `gradient_sync`.
    """
    shape = list_shape_values(site, kind.topology)
    return {**shape, "framework": kind.framework, "gradient_sync": kind.gradient_sync}


def render_word(text: str, values: Mapping[str, object], key: str) -> str:
    """Render the template in a setting, "--nodes={{ nodes }}"; text without `{{` stays as it is.

    Raises InputError, whose message begins with `key`, the setting in the site file.
    """
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return text
    # imported only if needed, as it loads Jinja2
    from dlperf_slurm.jobs.sandbox import render_setting

    return render_setting(text, values, key)


def render_words(words: Sequence[str], values: Mapping[str, object], key: str) -> list[str]:
    """Render a command's words, where bash expands `${NAME}`; raises InputError naming `key`."""
    return [ShellTemplate(render_word(word, values, key)) for word in words]
