"""A case and the place of its rank -> the devices of all ranks; what they say of themselves."""

import os
from typing import Dict

import jax
import jaxlib
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement

RANKS = "ranks"
# XLA's default on GPUs is TF32
MATMUL_PRECISIONS = {"fp32": "highest", "tf32": "tensorfloat32"}


def make_mesh(placement: Placement) -> Mesh:
    """One device of each rank, in the order of ranks."""
    devices = {device.process_index: device for device in reversed(jax.devices())}
    return Mesh([devices[rank] for rank in range(placement.world_size)], (RANKS,))


def configure_devices(case: Case, placement: Placement) -> None:
    """What JAX reads when it is first asked for a device, and keeps."""
    # the size of XLA's thread pool on the CPU, which has no public setting (seen in jaxlib 0.10)
    os.environ["PJRT_NPROC"] = str(case.cpus_per_rank)
    jax.config.update("jax_platforms", case.device)
    if case.device == "cuda":
        jax.config.update("jax_cuda_visible_devices", str(choose_gpu(placement)))
    jax.config.update("jax_default_matmul_precision", MATMUL_PRECISIONS.get(case.axes.precision))


def choose_gpu(placement: Placement) -> int:
    # Under srun --gpus-per-task=1 each rank sees its own GPU only, as number 0.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and "," not in visible:
        return 0
    return placement.local_rank


def join_process_group(placement: Placement) -> None:
    """Collectives are NCCL's on GPUs and Gloo's on CPUs."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"{placement.master_address}:{placement.master_port}",
        num_processes=placement.world_size,
        process_id=placement.rank,
        # else it looks for Slurm and Open MPI, and takes its devices from them
        cluster_detection_method="deactivate",
    )
    # Gloo's ranks meet at the first collective, and give up after 30 seconds (jaxlib 0.10): before
    # the model is compiled, which may take them unlike times. Later ones wait for longer.
    multihost_utils.sync_global_devices("connect")


def read_device_name(device: jax.Device) -> str:
    if device.platform == "cpu":
        return host.read_cpu_name()
    return str(device.device_kind)


def read_versions(device: jax.Device) -> Dict[str, str]:
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    if device.platform != "cpu":
        # the plug-in's interface and its CUDA; on the CPU it only says "cpu"
        versions["pjrt"] = " ".join(device.client.platform_version.split())
    return versions
