"""Cases x site -> array jobs: what can run here, grouped by resource shape, in shuffled order."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import (
    DALI,
    FOLDER,
    HOROVOD,
    ON_DEVICE,
    PARAMETER_SERVER,
    VAL,
    WORKER,
)
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.matrix.expand import Expansion, LeftOut, MatrixCase
from dlperf_slurm.worker.frameworks import join_reasons, load_adapter
from dlperf_slurm.worker.models import list_models, load_model

# Slurm's default MaxArraySize is 1001: the largest index is 1000, from 0
DEFAULT_MAX_ARRAY_SIZE = 1001


@dataclass(frozen=True)
class ArrayTask:
    """One element of an array job: a case with its repeat and attempt."""

    case: MatrixCase
    repeat: int
    attempt: int

    @property
    def attempt_dir(self) -> str:
        """Relative to the run directory."""
        return f"cases/{self.case.case_id}/r{self.repeat}/a{self.attempt}"


@dataclass(frozen=True)
class Group:
    """One array job: array tasks that ask for the same resources."""

    group_id: str
    topology: Topology
    time_limit_minutes: int
    array_tasks: tuple[ArrayTask, ...]

    @property
    def frameworks(self) -> tuple[str, ...]:
        return tuple(sorted({task.case.axes.framework for task in self.array_tasks}))

    @property
    def node_hours(self) -> float:
        """What the array job costs at most: every array task at its time limit."""
        return len(self.array_tasks) * self.topology.nodes * self.time_limit_minutes / 60


@dataclass(frozen=True)
class Plan:
    """Everything that will be submitted, and what will not, with the reason."""

    cases: tuple[MatrixCase, ...]
    groups: tuple[Group, ...]
    left_out: tuple[LeftOut, ...]

    def find_node_hours(self, case: MatrixCase) -> float:
        """What the repeats of one case cost at most."""
        minutes = next(g.time_limit_minutes for g in self.groups if g.topology == case.topology)
        return case.protocol.repeats * case.topology.nodes * minutes / 60

    @property
    def array_task_count(self) -> int:
        return sum(len(group.array_tasks) for group in self.groups)

    @property
    def node_hours(self) -> float:
        return sum(group.node_hours for group in self.groups)


def make_plan(expansion: Expansion, site: Site, max_array_size: int) -> Plan:
    """Group what the site and the adapters can run into as few array jobs as possible."""
    left_out = list(expansion.excluded)
    cases: list[MatrixCase] = []
    for case in expansion.cases:
        reason = find_obstacle(case, site)
        if reason is None:
            cases.append(case)
        else:
            left_out.append(LeftOut(case, reason))
    tasks = [
        ArrayTask(case, repeat, 1)
        for case in cases
        for repeat in range(1, case.protocol.repeats + 1)
    ]
    groups = group_array_tasks(tasks, site, max_array_size)
    return Plan(tuple(cases), groups, tuple(left_out))


def find_obstacle(case: MatrixCase, site: Site) -> Optional[str]:
    """All that keeps the site or the framework from running a case, with what would work, or None.

    What is missing is only asked for where it would be of use.
    """
    obstacles = [_find_topology_obstacle(case.topology, site)]
    if case.script is not None:
        obstacles.append(_find_script_obstacle(case))
    else:
        adapter = load_adapter(case.axes.framework)
        obstacles += [
            adapter.find_unsupported(make_case(case, site, "", 1, 1)),
            _find_search_obstacle(case, site),
            _find_inference_obstacle(case),
            _find_training_obstacle(case),
        ]
    return join_reasons(obstacles) or _find_data_obstacle(case, site)


def _find_topology_obstacle(topology: Topology, site: Site) -> Optional[str]:
    if site.max_nodes is not None and topology.nodes > site.max_nodes:
        return f"{topology} needs {topology.nodes} nodes, the site has {site.max_nodes}"
    most = site.max_devices_per_node
    if most is not None and topology.devices_per_node > most:
        return f"{topology} needs {topology.devices_per_node} devices per node, the site has {most}"
    if most is None and site.scheduler == "local" and site.device == "cpu":
        needed, present = topology.devices_per_node * site.cpus_per_rank, os.cpu_count() or 1
        if needed > present:
            return (
                f"{topology} needs {needed} CPUs, this machine has {present}; to let ranks share "
                f"them, set max_devices_per_node={topology.devices_per_node}"
            )
    return None


def _find_search_obstacle(case: MatrixCase, site: Site) -> Optional[str]:
    """Of a search that only memory ends, where neither a device nor a scheduler limits it."""
    is_endless = case.axes.is_largest_batch
    is_limited = site.device != "cpu" or site.scheduler != "local"
    if is_endless and not is_limited and not case.protocol.memory_limit_mib_per_device:
        return (
            f"batch size '{case.axes.batch_size_per_device}' would take all memory of this "
            "machine; set memory_limit_mib_per_device in [protocol]"
        )
    return None


def _find_inference_obstacle(case: MatrixCase) -> Optional[str]:
    axes = case.axes
    if axes.mode != VAL:
        return None
    if axes.clip_global_norm:
        return "clip_global_norm is for gradients, which mode 'val' has not; use mode 'train'"
    if axes.distribution in (PARAMETER_SERVER, HOROVOD):
        return (
            f"distribution {axes.distribution!r} brings gradients together, which mode 'val' has "
            f"not; use 'native', or mode 'train'"
        )
    if axes.data != ON_DEVICE:
        return (
            f"data {axes.data!r} would be part of the latency of mode 'val', whose batch is on the "
            f"device; use data '{ON_DEVICE}', or mode 'train'"
        )
    return None


def _find_data_obstacle(case: MatrixCase, site: Site) -> Optional[str]:
    axes = case.axes
    if axes.data not in (FOLDER, DALI):
        return None
    folder = site.find_dataset_dir(case.dataset)
    if not Path(folder).is_dir():
        return (
            f"data {axes.data!r} reads the data set {case.dataset!r} from {folder}, which is not "
            f"there; name its folder in the site file's [datasets], or see: dlperf-slurm data make"
        )
    return None


def _find_training_obstacle(case: MatrixCase) -> Optional[str]:
    """Of training to accuracy."""
    if not case.training.epochs:
        return None
    if case.axes.data != FOLDER:
        return (
            f"training over epochs needs real data in an order of its seed, which data "
            f"{case.axes.data!r} has not; use data '{FOLDER}', or leave [training] out"
        )
    if not load_model(case.model).HAS_ACCURACY:
        others = [repr(name) for name in list_models() if load_model(name).HAS_ACCURACY]
        return (
            f"{case.model} has no accuracy to train to; use {' or '.join(others)}, or leave "
            f"[training] out"
        )
    if case.axes.has_batch_search:
        return (
            f"training over epochs takes its batch size as a number, not "
            f"'{case.axes.batch_size_per_device}'"
        )
    return None


def _find_script_obstacle(case: MatrixCase) -> Optional[str]:
    """Of somebody else's script, which alone knows what its framework can do."""
    axes = case.axes
    if axes.mode == VAL:
        return f"source {axes.source!r} is a training script; use mode 'train'"
    if case.training.epochs:
        return f"source {axes.source!r} has its own way to train over epochs; leave [training] out"
    if axes.has_batch_search:
        return (
            f"source {axes.source!r} takes its batch size as a number; "
            f"'{axes.batch_size_per_device}' is for source '{WORKER}'"
        )
    return None


def group_array_tasks(
    tasks: Sequence[ArrayTask], site: Site, max_array_size: int, suffix: str = ""
) -> tuple[Group, ...]:
    """Array tasks with the same shape go together, cut at the cluster's MaxArraySize.

    Frameworks share an array, so that their array tasks alternate on the nodes and a drift of the
    machine does not look like a difference between them.
    """
    groups: list[Group] = []
    for topology in sorted({task.case.topology for task in tasks}):
        same = [task for task in tasks if task.case.topology == topology]
        same.sort(key=_shuffle_key)
        for start in range(0, len(same), max_array_size):
            number = start // max_array_size + 1
            chunk = f"-{number}" if len(same) > max_array_size else ""
            groups.append(
                Group(
                    group_id=f"{topology}{suffix}{chunk}",
                    topology=topology,
                    time_limit_minutes=site.find_time_limit_minutes(topology),
                    array_tasks=tuple(same[start : start + max_array_size]),
                )
            )
    return tuple(groups)


def _shuffle_key(task: ArrayTask) -> str:
    """A random but fixed order: a hash does not depend on the Python version, a shuffle may."""
    text = f"{task.case.protocol.shuffle_seed}/{task.case.case_id}/{task.repeat}"
    return hashlib.sha256(text.encode()).hexdigest()


def make_case(case: MatrixCase, site: Site, run_id: str, repeat: int, attempt: int) -> Case:
    """What the worker reads of a case."""
    limit_mib = case.protocol.memory_limit_mib_per_device
    has_files = case.axes.data in (FOLDER, DALI)
    return Case(
        run_id=run_id,
        case_id=case.case_id,
        repeat=repeat,
        attempt=attempt,
        axes=case.axes,
        model=case.model,
        model_parameters=dict(case.model_parameters),
        device=site.device,
        cpus_per_rank=site.cpus_per_rank,
        warmup_steps=case.protocol.warmup_steps,
        measured_steps=case.protocol.measured_steps,
        # over several seeds, as accuracies are published
        seed=case.protocol.seed + (repeat - 1 if case.training.epochs else 0),
        log_format=case.script.format if case.script else None,
        log_rule=(case.script.rule or None) if case.script else None,
        batch_granularity=case.protocol.batch_granularity,
        memory_limit_bytes=limit_mib * 2**20 if limit_mib else 0,
        data_dir=site.find_dataset_dir(case.dataset) if has_files else "",
        training=case.training,
        telemetry_interval_seconds=case.protocol.telemetry_interval_seconds,
    )
