"""A rank of a probe job -> a file with its peers, cores, framework and devices.

The file is written again before each step that may end the process. No finding is an error here.
"""

import json
import os
import shutil
import socket
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, Mapping

from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.files.writing import write_file
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.nodes.devices import LIST, DeviceError, call_driver
from dlperf_slurm.worker.nvml import (
    ask,
    find_device_uuid,
    find_handle,
    list_seen,
    list_visible,
    load_nvml,
)
from dlperf_slurm.worker.provenance.machine import describe_network
from dlperf_slurm.worker.provenance.software import describe_limits
from dlperf_slurm.worker.rendezvous import RendezvousSettings
from dlperf_slurm.worker.rendezvous.communicators import join_ranks

MODULE_FILE = "module"
ANSWER_PREFIX = "probe-"
SMI_SECONDS = 60.0
SHARED_MEMORY = "/dev/shm"
# errors of importing a package that is missing or does not fit this machine
BROKEN = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)

# calls that count the GPUs visible to this process, by module; other modules: nvidia-smi
COUNTS: Dict[str, Callable[[Any], int]] = {
    "torch": lambda torch: torch.cuda.device_count(),
    "tensorflow": lambda tf: len(tf.config.experimental.list_physical_devices("GPU")),
    "jax": lambda jax: sum(device.platform != "cpu" for device in jax.local_devices()),
    "paddle": lambda paddle: paddle.device.cuda.device_count(),
    "mxnet": lambda mxnet: mxnet.context.num_gpus(),
    "oneflow": lambda oneflow: oneflow.cuda.device_count(),
}


def probe_rank(folder: Path, rendezvous: RendezvousSettings) -> int:
    """Write what this rank finds out about its node and job to a JSON file; always return 0.

    `folder` has the case of the probe job, and gets the file.
    """
    host = socket.gethostname()
    path = folder / f"{ANSWER_PREFIX}{host}-{os.getpid()}.json"
    # a minimal container may have none
    has_shm = Path(SHARED_MEMORY).is_dir()
    answer: Dict[str, Any] = {
        "host": host,
        "cores": sorted(os.sched_getaffinity(0)),
        "limits": {**describe_limits(), **describe_network()},
        "shm_mib": shutil.disk_usage(SHARED_MEMORY).total // 2**20 if has_shm else 0,
    }
    write_findings(path, answer)
    case = read_json(folder / CASE_FILE, Case)
    rank_info = join(answer, host, rendezvous, case, folder)
    write_findings(path, answer)
    load_framework(answer, case, folder)
    if case.device == "cuda":
        answer["uuid"] = find_device_uuid(case, rank_info, os.environ)
        answer.update(ask_driver(os.environ))
    answer["is_done"] = True
    write_findings(path, answer)
    return 0


def write_findings(path: Path, answer: Dict[str, Any]) -> None:
    """Write the findings so far, `answer`, to the file `path` as JSON."""
    write_file(path, json.dumps(answer).encode(), root=path.parent)


def join(
    answer: Dict[str, Any], host: str, rendezvous: RendezvousSettings, case: Case, folder: Path
) -> RankInfo:
    """Join the other ranks and return this rank's RankInfo, or on failure that of a single rank.

    `answer` gets "rank", "world_size" and "mpi", or "join_error".
    """
    try:
        world = join_ranks(rendezvous, case, folder)
        hosts = world.exchange(host)
        answer.update(rank=world.rank, world_size=world.size)
        answer["mpi"] = world.describe_versions().get("mpi", "")
    except BROKEN as error:
        answer["join_error"] = describe(error)
        return RankInfo(0, 0, 1, host, "", 0)
    return RankInfo(world.rank, hosts[: world.rank].count(host), world.size, host, "", 0)


def load_framework(answer: Dict[str, Any], case: Case, folder: Path) -> None:
    """Import the framework and, for a case on GPUs, count the devices that it sees.

    The findings `answer` get "version" and "gpus", or "import_error". MODULE_FILE in `folder` names
    the framework's Python module.
    """
    name = (folder / MODULE_FILE).read_text(encoding="utf-8").strip()
    try:
        module = import_module(name)
        answer["version"] = str(getattr(module, "__version__", "?"))
        if case.device == "cuda":
            answer["gpus"] = COUNTS[name](module) if name in COUNTS else count_by_driver()
    except BROKEN as error:
        answer["import_error"] = describe(error)


def count_by_driver() -> int:
    """Count the GPUs that nvidia-smi lists and CUDA_VISIBLE_DEVICES allows; 0 if it fails."""
    try:
        listed = call_driver(LIST, SMI_SECONDS).splitlines()
    except DeviceError:
        return 0
    count = sum(line.startswith("GPU ") for line in listed)
    numbers = [str(number) for number in range(count)]
    return min(count, len(list_visible(os.environ, numbers)))


def ask_driver(environ: Mapping[str, str]) -> Dict[str, Any]:
    """Return the driver's CUDA version ("cuda") and the visible GPUs' "capabilities", by NVML.

    The version is NVML's number, such as 12040 for 12.4, the others distinct compute capabilities
    such as "9.0". Returns {} without NVML.
    """
    nvml = load_nvml()
    if nvml is None:
        return {}
    handles = (find_handle(nvml, name) for name in list_seen(nvml, environ))
    told = [ask(nvml, "nvmlDeviceGetCudaComputeCapability", h) for h in handles if h is not None]
    return {
        "cuda": ask(nvml, "nvmlSystemGetCudaDriverVersion_v2") or 0,
        "capabilities": ["{}.{}".format(*one) for one in sorted({tuple(t) for t in told if t})],
    }


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
