"""A rank's device in the mesh of all: joining them, and NumPy's arrays -> device -> all ranks."""

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
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.nvml import list_seen, list_visible, load_nvml

RANKS = "ranks"
# of the products of float32; XLA takes TF32 on GPUs where it is left the choice. By the precision
# that JAX calls "tensorfloat32" its kernels of Triton have none.
MATMUL_PRECISIONS = {"fp32": "highest"}

Arrays = Dict[str, Array]


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
    """Counted by NVML: JAX has to be told before it looks, and then takes memory on all it sees."""
    nvml = load_nvml()
    visible = list_seen(nvml, os.environ) if nvml else list_visible(os.environ, ())
    return placement.choose_gpu(len(visible))


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


def place(values: Any, sharding: NamedSharding) -> Array:
    """This process's part of an array over all ranks; 64-bit integers become 32-bit ones."""
    return jax.make_array_from_process_local_data(sharding, values)


def pin(batch: Dict[str, Any], device: jax.Device) -> Arrays:
    """In host memory that the device copies from by itself.

    Of NumPy's own memory a copy "to" a CPU would be none, where its alignment allows that.
    """
    return jax.device_put(batch, SingleDeviceSharding(device, memory_kind="pinned_host"))


def load_batch(staged: Arrays, mesh: Mesh) -> Arrays:
    """Copy to this rank's device, as its part of a batch of all ranks, without waiting for it."""
    own = jax.device_put(staged, SingleDeviceSharding(mesh.local_devices[0]))
    sharding = NamedSharding(mesh, P(RANKS))
    return {
        name: jax.make_array_from_single_device_arrays(
            (mesh.size * values.shape[0], *values.shape[1:]), sharding, [values]
        )
        for name, values in own.items()
    }


def take_own(tree: Any) -> Any:
    """This rank's part of each array, on its device alone."""
    return jax.tree.map(lambda values: values.addressable_data(0), tree)


def read_own(values: Any) -> float:
    """This rank's value of an array with one value per rank."""
    return float(numpy.asarray(values.addressable_data(0), numpy.float32)[0])
