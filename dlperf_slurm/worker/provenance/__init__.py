"""This process -> the provenance of its results: versions, machine, job."""

import os
import platform
from typing import Any, Dict, List, Tuple

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.record import HostPlatform
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.provenance.gpu import describe_gpus, describe_rocm
from dlperf_slurm.worker.provenance.gpu_affinity import describe_gpu_affinity
from dlperf_slurm.worker.provenance.machine import (
    describe_binding,
    describe_cpu,
    describe_network,
)
from dlperf_slurm.worker.provenance.software import (
    describe_code,
    describe_container,
    describe_libraries,
    describe_limits,
    describe_system,
)
from dlperf_slurm.worker.provenance.variables import describe_environment

Facts = Dict[str, str]

# host of a rank, facts of the host (from its first rank only), facts of the rank
Told = Tuple[str, Facts, Facts]

# variables that identify a job, or change how fast it runs
_JOB_VARIABLES = """
SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_CLUSTER_NAME SLURM_CPUS_PER_TASK SLURM_CPU_BIND
SLURM_DISTRIBUTION SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_JOB_ACCOUNT SLURM_JOB_ID
SLURM_JOB_NODELIST SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_MEM_BIND SLURM_MEM_PER_NODE
SLURM_RESTART_COUNT SLURM_TOPOLOGY_ADDR
"""

# facts that identify machines or ranks, and do not affect their speed
IDENTITIES = (
    "cpu_list",
    "env.CUDA_VISIBLE_DEVICES",
    "env.FLAGS_selected_gpus",
    "env.HIP_VISIBLE_DEVICES",
    "env.ROCR_VISIBLE_DEVICES",
    "gpu_uuids",
    "memory_nodes",
)


def describe_python() -> Dict[str, str]:
    """Return {"python": version, "numpy": version}."""
    import numpy

    return {"python": platform.python_version(), "numpy": numpy.__version__}


def describe_platform() -> Dict[str, str]:
    """Describe the host, and this process's limits, libraries and environment, as name -> text."""
    return {**describe_host(), **describe_rank()}


def describe_host() -> Dict[str, str]:
    """Describe system, container, code, CPUs, GPUs and network of the host, as name -> text."""
    return {
        **describe_system(),
        **describe_container(),
        **describe_code(),
        **describe_cpu(),
        **describe_gpus(),
        **describe_rocm(),
        **describe_network(),
    }


def describe_rank() -> Dict[str, str]:
    """Describe affinity, limits, libraries and environment variables of this rank, name -> text.

    Call this after libraries are loaded.
    """
    return {
        **describe_binding(),
        **describe_limits(),
        **describe_libraries(),
        **describe_environment(),
    }


def gather_platforms(
    case: Case, world: Any, rank_info: RankInfo
) -> Tuple[Dict[str, str], Tuple[HostPlatform, ...]]:
    """Gather the facts of all hosts to rank 0, as `Record.platform` and `Record.hosts`.

    All ranks must call this; on the others the result is empty.
    """
    of_host = describe_host() if rank_info.local_rank == 0 else {}
    of_rank = describe_rank()
    if case.device == "cuda":
        of_rank.update(describe_gpu_affinity(rank_info.local_rank, os.environ))
    return merge_platforms(world.gather((rank_info.host, of_host, of_rank)))


def merge_platforms(told: List[Told]) -> Tuple[Facts, Tuple[HostPlatform, ...]]:
    """Merge what all ranks report, in rank order, to `Record.platform` and `Record.hosts`.

    `told` has for each rank its host, the facts of the host and those of the rank. The platform is
    that of the first host; the second result has the hosts with other facts, and only these facts.
    Both are empty for an empty `told`, as on ranks other than 0.
    """
    ranks: Dict[str, List[Told]] = {}
    for one in told:
        ranks.setdefault(one[0], []).append(one)
    merged = {host: _merge_ranks(of_host) for host, of_host in ranks.items()}
    if not merged:
        return {}, ()
    platform = next(iter(merged.values()))
    differing = (HostPlatform(host, _find_other(facts, platform)) for host, facts in merged.items())
    return platform, tuple(host for host in differing if host.facts)


def _merge_ranks(ranks: List[Told]) -> Facts:
    """Merge the facts of a host's ranks; a fact that differs lists all values by local rank."""
    facts: Facts = {}
    for _, of_host, _ in ranks:
        facts.update(of_host)
    for name in dict.fromkeys(name for _, _, of_rank in ranks for name in of_rank):
        values = [of_rank.get(name, "") for _, _, of_rank in ranks]
        same = len(set(values)) == 1
        facts[name] = values[0] if same else "; ".join(value or "none" for value in values)
    return facts


def _find_other(facts: Facts, platform: Facts) -> Facts:
    """Return the `facts` of a host that differ from `platform`, with "" for a missing one."""
    names = dict.fromkeys([*facts, *platform])
    return {
        name: facts.get(name, "") for name in names if facts.get(name, "") != platform.get(name, "")
    }


def describe_job() -> Dict[str, str]:
    """Return Slurm's environment variables that describe this job, by name; {} without Slurm."""
    return {name: os.environ[name] for name in _JOB_VARIABLES.split() if name in os.environ}
