"""A case and a site -> why the case cannot run there, and what would work."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.folders import CUDA, find_managed_environment, get_creation_command
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import (
    DALI,
    FOLDER,
    HOROVOD,
    INFER,
    ON_DEVICE,
    PARAMETER_SERVER,
    SHARDED,
    WORKER,
)
from dlperf_slurm.contract.case import Case, find_most_steps
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.files.reading import ARRAY_LIMIT_BYTES, MIB
from dlperf_slurm.launchers import LAUNCHERS
from dlperf_slurm.matrix.expand import MatrixCase
from dlperf_slurm.program import COMMAND
from dlperf_slurm.provision.environments.gpu_support import (
    describe_cpu_build,
    find_managed_pins,
    find_missing_code,
)
from dlperf_slurm.worker.models import list_models, load_model
from dlperf_slurm.worker.rendezvous import MPI
from dlperf_slurm.worker.support import find_unsupported, join_reasons

# the MindSpore adapter uses an MPI barrier before the first collective
MINDSPORE = "mindspore"


def explain_unsupported(case: MatrixCase, job_case: Case, job_site: Site) -> Optional[str]:
    """Return why the site or the framework cannot run a case, with what would work, or None.

    `job_site` is the site resolved for the case's job, `job_case` the case as the worker reads it.
    A missing data set is only reported if nothing else prevents the case.
    """
    obstacles = [_find_topology_obstacle(case.topology, job_site, job_case.cpus_per_rank)]
    if case.script_table is not None:
        obstacles.append(_find_script_obstacle(case))
    else:
        obstacles += [
            find_unsupported(replace(job_case, axes=case.axes)),
            _find_size_obstacle(case),
            _find_search_obstacle(case, job_site),
            _find_inference_obstacle(case),
            _find_training_obstacle(case),
            _find_build_obstacle(case, job_site),
            *_find_ranks_obstacles(case, job_site),
        ]
    return join_reasons(obstacles) or _find_data_obstacle(case, job_site)


def _find_topology_obstacle(topology: Topology, site: Site, cpus_per_rank: int) -> Optional[str]:
    """Return why the site has too few nodes, devices or cores for a topology, or None."""
    if site.max_nodes is not None and topology.nodes > site.max_nodes:
        return (
            f"{topology} needs {topology.nodes} nodes, but the site has {site.max_nodes} "
            "(max_nodes)"
        )
    most = site.max_devices_per_node
    if most is not None and topology.devices_per_node > most:
        return (
            f"{topology} needs {topology.devices_per_node} devices per node, but the site has "
            f"{most} (max_devices_per_node)"
        )
    if most is None and site.scheduler == "local" and site.device == "cpu":
        needed, present = topology.devices_per_node * cpus_per_rank, os.cpu_count() or 1
        if needed > present:
            return (
                f"{topology} needs {needed} CPUs, but this machine has {present}; to let ranks "
                f"share CPUs, set max_devices_per_node={topology.devices_per_node}"
            )
    return None


def _find_build_obstacle(case: MatrixCase, job_site: Site) -> Optional[str]:
    """Return why a framework's build cannot use the site's GPUs; None if it can or may."""
    framework, capability = case.axes.framework, job_site.compute_capability
    pins = find_managed_pins(framework, job_site)
    if pins is None:
        problem = describe_cpu_build(framework, job_site)
        remedy = (
            "; name an environment for GPUs under [environments] in the site file, or remove the "
            "CPU environment from the file and create one for GPUs: "
            f"`{get_creation_command(framework, CUDA)}`"
        )
        return f"{framework}: {problem}{remedy}" if problem else None
    wrong = pins.none or (capability and find_missing_code(pins, capability))
    # a missing environment can be created with Horovod if its pins include a compiler
    managed = find_managed_environment(pins.name)
    is_there = (managed / "bin" / "python").exists()
    if not wrong and case.axes.gradient_sync == HOROVOD and (is_there or not pins.compiler):
        from dlperf_slurm.provision.environments.horovod import find_missing_horovod

        wrong = find_missing_horovod(pins, managed)
    return f"{framework}: {wrong}" if wrong else None


def _find_size_obstacle(case: MatrixCase) -> Optional[str]:
    """Return why the step or token times would exceed the size limit of their file, or None."""
    steps = max(case.protocol.warmup_steps, case.protocol.measured_steps)
    ranks = case.topology.world_size
    per_step = case.axes.output_tokens if case.axes.is_generation else 1
    largest = find_most_steps(case.axes)
    if steps <= largest:
        return None
    what = f"{per_step} tokens in each of {steps} steps" if per_step > 1 else f"{steps} steps"
    remedy = f"set measured_steps and warmup_steps in [protocol] to at most {largest}"
    return (
        f"the times of {what} on {ranks} ranks need more than {ARRAY_LIMIT_BYTES // MIB} MiB, the "
        f"limit per repeat: {remedy if largest else 'reduce output_tokens'}"
    )


def _find_search_obstacle(case: MatrixCase, site: Site) -> Optional[str]:
    """Return why a search for the largest batch is refused, or None if it is allowed.

    On local CPUs it needs a memory limit, else it would use all memory of the machine.
    """
    is_endless = case.axes.is_largest_batch
    is_limited = site.device != "cpu" or site.scheduler != "local"
    if is_endless and not is_limited and not case.protocol.memory_limit_mib_per_device:
        return (
            f"batch size '{case.axes.batch_size_per_device}' would use all memory of this "
            "machine; set memory_limit_mib_per_device in [protocol]"
        )
    return None


def _find_inference_obstacle(case: MatrixCase) -> Optional[str]:
    """Return which setting of an inference case applies to training only, or None."""
    axes = case.axes
    if axes.mode != INFER:
        return None
    if axes.is_generation:
        obstacle = _find_generation_obstacle(case)
        if obstacle:
            return obstacle
    if axes.clip_global_norm:
        return (
            "clip_global_norm is for gradients, which mode 'infer' does not compute; use mode "
            "'train'"
        )
    if axes.gradient_sync in (PARAMETER_SERVER, HOROVOD, SHARDED):
        return (
            f"gradient_sync {axes.gradient_sync!r} sums gradients over the ranks, but mode "
            "'infer' computes no gradients; use gradient_sync 'native', or mode 'train'"
        )
    if axes.data != ON_DEVICE:
        return (
            f"with data {axes.data!r}, loading data would be part of the latency that mode 'infer' "
            f"measures; use data '{ON_DEVICE}', or mode 'train'"
        )
    return None


def _find_generation_obstacle(case: MatrixCase) -> Optional[str]:
    """Return why a model cannot generate the output tokens of a case, or None."""
    axes, model = case.axes, load_model(case.model)
    if not model.GENERATES:
        others = [repr(name) for name in list_models() if load_model(name).GENERATES]
        return (
            f"{case.model} cannot generate text; use output_tokens = 0, or model "
            f"{' or '.join(others)}"
        )
    most = model.Definition(**case.model_parameters).sequence_length
    if axes.prompt_length + axes.output_tokens > most:
        return (
            f"prompt_length {axes.prompt_length} plus output_tokens {axes.output_tokens} exceed "
            f"the sequence_length of {case.model}, {most}"
        )
    return None


def _find_ranks_obstacles(case: MatrixCase, job_site: Site) -> Iterator[str]:
    """Yield why the launcher or the case needs another way of connecting ranks than the site's."""
    ranks, launcher = job_site.ranks, job_site.starting_launcher
    kinds = LAUNCHERS[launcher].rendezvous_methods
    if ranks not in kinds:
        fitting = sorted(name for name in LAUNCHERS if ranks in LAUNCHERS[name].rendezvous_methods)
        others = [f'"{kind}"' for kind in kinds]
        instead = f", or ranks = {' or '.join(others)}" if others else ""
        yield (
            f'launcher {launcher!r} does not set the variables that ranks = "{ranks}" in the site '
            f"file needs; use launcher {' or '.join(map(repr, fitting))}{instead}"
        )
    need = _find_need_of_mpi(case)
    if ranks != MPI and need:
        yield (
            f'{need} needs MPI, but the site has ranks = "{ranks}", which does not use MPI; set '
            'ranks = "mpi" in the site file'
        )


def _find_need_of_mpi(case: MatrixCase) -> str:
    """Return the setting of a case that requires MPI, or '' if none does."""
    axes = case.axes
    if axes.gradient_sync in (HOROVOD, "mpi"):
        return f"gradient_sync {axes.gradient_sync!r}"
    is_together = axes.mode != INFER and case.topology.world_size > 1
    return MINDSPORE if axes.framework == MINDSPORE and is_together else ""


def _find_data_obstacle(case: MatrixCase, site: Site) -> Optional[str]:
    """Return why a case cannot read its data set on the site, or None."""
    axes = case.axes
    # an external script's own model has no data set
    if axes.data not in (FOLDER, DALI) or not case.dataset:
        return None
    dataset = site.find_dataset(case.dataset)
    if not dataset.on_login_node:
        return None
    path = Path(site.find_dataset_path(case.dataset))
    if path.is_dir() or (dataset.stage_to is not None and path.is_file()):
        return None
    words = f"data {axes.data!r} reads data set {case.dataset!r} at {path}"
    if path.is_file():
        return f"{words}, which is not a folder; to use a tar archive, also set `stage_to`"
    return (
        f"{words}, which does not exist; set its folder in [datasets] of the site file, or create "
        f"a small one: {COMMAND} data make. If only compute nodes can see it, set on_login_node = "
        f"false in [datasets.{case.dataset}]"
    )


def _find_training_obstacle(case: MatrixCase) -> Optional[str]:
    """Return why a case cannot train to accuracy, or None."""
    if not case.training.epochs:
        return None
    if case.axes.data != FOLDER:
        return (
            "training over epochs needs real data in an order set by the seed, but data "
            f"{case.axes.data!r} has no such order; use data '{FOLDER}', or remove [training]"
        )
    if not load_model(case.model).HAS_ACCURACY:
        others = [repr(name) for name in list_models() if load_model(name).HAS_ACCURACY]
        return (
            f"training over epochs measures the top-1 accuracy, which {case.model} does not have; "
            f"use {' or '.join(others)}, or remove [training]"
        )
    if case.axes.gradient_sync == SHARDED:
        return (
            "gradient_sync 'sharded' cannot validate, as ranks have different numbers of "
            "validation batches; to train over epochs use gradient_sync 'native'"
        )
    if case.axes.has_batch_search:
        return (
            "training over epochs needs a number as batch size, not "
            f"'{case.axes.batch_size_per_device}'"
        )
    return None


def _find_script_obstacle(case: MatrixCase) -> Optional[str]:
    """Return why an external script cannot run a case, or None; its framework is not checked."""
    axes = case.axes
    if axes.mode == INFER:
        return f"script {axes.script!r} only trains; use mode 'train'"
    if case.training.epochs:
        return f"script {axes.script!r} chooses its number of epochs itself; remove [training]"
    if axes.has_batch_search:
        return (
            f"script {axes.script!r} needs a number as batch size; '{axes.batch_size_per_device}' "
            f"is only for script '{WORKER}'"
        )
    return None
