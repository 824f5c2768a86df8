"""Arrays of this process and the global ones, over one device of each rank, that they are part of.

NumPy -> this rank's host memory -> its device -> an array over all ranks; and back.
"""

from typing import Any, Dict

import jax
import numpy
from jax import Array
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from dlperf_slurm.worker.frameworks.jax.devices import RANKS


def place(values: Any, sharding: NamedSharding) -> Array:
    """This process's part of an array over all ranks; 64-bit integers become 32-bit ones."""
    return jax.make_array_from_process_local_data(sharding, values)


def pin(batch: Dict[str, Any], device: jax.Device) -> Dict[str, Array]:
    """In host memory that the device copies from by itself.

    Of NumPy's own memory a copy "to" a CPU would be none, where its alignment allows that.
    """
    return jax.device_put(batch, SingleDeviceSharding(device, memory_kind="pinned_host"))


def load_batch(staged: Dict[str, Array], mesh: Mesh) -> Dict[str, Array]:
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
