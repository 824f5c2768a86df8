"""A rank -> its device in the mesh of all ranks, and NumPy arrays copied to that device."""

import os
from typing import Any, Dict

import jax
import jaxlib
import numpy
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.nvml import list_seen, list_visible, load_nvml

RANKS = "ranks"
# precision of float32 matrix products: by default XLA uses TF32 on GPUs. For "tf32" this default is
# used too, because JAX's "tensorfloat32" has no effect in XLA's Triton kernels.
MATMUL_PRECISIONS = {"fp32": "highest"}

Arrays = Dict[str, Array]


def make_mesh(rank_info: RankInfo) -> Mesh:
    """Return a one-dimensional mesh with one device per rank, in rank order."""
    devices = {device.process_index: device for device in reversed(jax.devices())}
    return Mesh([devices[rank] for rank in range(rank_info.world_size)], (RANKS,))


def configure_devices(case: Case, rank_info: RankInfo) -> None:
    """Set the CPU threads, platform (CPU or CUDA), GPU and float32 matmul precision of this rank.

    Call this before JAX lists its devices: it does not apply later changes.
    """
    # the size of XLA's thread pool on the CPU; there is no public setting for it (jaxlib 0.10)
    os.environ["PJRT_NPROC"] = str(case.cpus_per_rank)
    jax.config.update("jax_platforms", case.device)
    if case.device == "cuda":
        jax.config.update("jax_cuda_visible_devices", str(choose_gpu(rank_info)))
    jax.config.update("jax_default_matmul_precision", MATMUL_PRECISIONS.get(case.axes.precision))


def choose_gpu(rank_info: RankInfo) -> int:
    """Return the index of this rank's GPU among those that it sees, which NVML counts, not JAX.

    JAX must be told its GPU before it lists the devices, because it reserves memory on all it sees.
    Without NVML the entries of CUDA_VISIBLE_DEVICES are counted.
    """
    nvml = load_nvml()
    visible = list_seen(nvml, os.environ) if nvml else list_visible(os.environ, ())
    return rank_info.choose_gpu(len(visible))


def join_process_group(rank_info: RankInfo) -> None:
    """Connect the ranks with jax.distributed; collectives run on NCCL (GPU) or Gloo (CPU)."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"{rank_info.master_address}:{rank_info.master_port}",
        num_processes=rank_info.world_size,
        process_id=rank_info.rank,
        # by default JAX detects Slurm or Open MPI and takes the local device ids from them
        cluster_detection_method="deactivate",
    )
    # Gloo connects the ranks at the first collective, with a timeout of 30 seconds (jaxlib 0.10).
    # So connect before the model is compiled, for which some ranks may need longer than others.
    # Later collectives have a longer timeout.
    multihost_utils.sync_global_devices("connect")


def read_versions(device: jax.Device) -> Dict[str, str]:
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    if device.platform != "cpu":
        # version of the PJRT plug-in and of CUDA; on the CPU it only says "cpu"
        versions["pjrt"] = " ".join(device.client.platform_version.split())
    return versions


def place(values: Any, sharding: NamedSharding) -> Array:
    """Return a global array made of each process's part, `values`; 64-bit types become 32-bit."""
    return jax.make_array_from_process_local_data(sharding, values)


def pin(batch: Dict[str, Any], device: jax.Device) -> Arrays:
    """Copy a batch into pinned host memory, from which the device copies by DMA.

    Without this copy, a transfer to the CPU device could alias NumPy's own memory and copy nothing.
    """
    return jax.device_put(batch, SingleDeviceSharding(device, memory_kind="pinned_host"))


def load_batch(staged: Arrays, mesh: Mesh) -> Arrays:
    """Copy this rank's batch from `pin` to its device, as part of the global one; does not wait."""
    own = jax.device_put(staged, SingleDeviceSharding(mesh.local_devices[0]))
    sharding = NamedSharding(mesh, P(RANKS))
    return {
        name: jax.make_array_from_single_device_arrays(
            (mesh.size * values.shape[0], *values.shape[1:]), sharding, [values]
        )
        for name, values in own.items()
    }


def take_own(tree: Any) -> Any:
    """Replace each global array of a tree by this rank's part of it, on its device."""
    return jax.tree.map(lambda values: values.addressable_data(0), tree)


def read_own(values: Any) -> float:
    """Return this rank's value of a global array that has one value per rank."""
    return float(numpy.asarray(values.addressable_data(0), numpy.float32)[0])
