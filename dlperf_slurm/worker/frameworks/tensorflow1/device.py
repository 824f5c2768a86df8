"""A case -> TensorFlow's configuration, what it says of the device, and what goes to variables."""

from typing import Any, Dict, Iterable, Tuple

import tensorflow as tf
from tensorflow.python.client import device_lib

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker import host
from dlperf_slurm.worker.frameworks import Placement
from dlperf_slurm.worker.frameworks.tensorflow.layers import NamedVariable
from dlperf_slurm.worker.horovod import read_horovod_version


def make_config(case: Case, placement: Placement) -> tf.compat.v1.ConfigProto:
    """Of the server and the session; a process keeps the threads of its first one."""
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=case.cpus_per_rank,
        # as its default is: what one operation leaves idle another one takes
        inter_op_parallelism_threads=case.cpus_per_rank,
    )
    if case.axes.compiler == "xla":
        options = config.graph_options.optimizer_options
        options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
    if case.device == "cpu":
        config.device_count["GPU"] = 0
    else:
        config.gpu_options.visible_device_list = str(choose_gpu(placement))
        # leaves room for NCCL's buffers
        config.gpu_options.allow_growth = True
        # what has no kernel for GPUs, as the all-reduce of a Horovod that was built without NCCL
        config.allow_soft_placement = True
    return config


def name_device(case: Case) -> str:
    return "/device:GPU:0" if case.device == "cuda" else "/device:CPU:0"


def choose_gpu(placement: Placement) -> int:
    """One GPU at most; TensorFlow would reserve memory on all of them."""
    count = len(tf.config.experimental.list_physical_devices("GPU"))
    if count == 0:
        raise RuntimeError("TensorFlow sees no GPU")
    return placement.choose_gpu(count)


def read_device_name(device: str, config: tf.compat.v1.ConfigProto) -> str:
    if device == "cpu":
        return host.read_cpu_name()
    gpus = [d for d in device_lib.list_local_devices(config) if d.device_type == "GPU"]
    # "device: 0, name: Tesla V100-SXM2-16GB, pci bus id: 0000:00:1e.0, compute capability: 7.0"
    fields = dict(field.split(": ", 1) for field in gpus[0].physical_device_desc.split(", "))
    return fields["name"]


def read_versions(case: Case) -> Dict[str, str]:
    """TensorFlow 1 does not tell with which CUDA and cuDNN it was built."""
    return {
        "tensorflow": str(tf.version.VERSION),
        "tensorflow_git": str(tf.version.GIT_VERSION),
        **read_horovod_version(case),
    }


def make_peak_memory(device: str) -> Any:
    """What reads the peak of the allocator of the default device; None on the CPU."""
    if device == "cpu":
        return None
    from tensorflow.contrib.memory_stats import MaxBytesInUse

    return MaxBytesInUse()


def load_weights(
    session: tf.compat.v1.Session,
    variables: Dict[str, NamedVariable],
    weights: Iterable[Tuple[str, Any]],
) -> None:
    """Copy NumPy arrays in the canonical layout into those variables that there are."""
    values = {
        name: array.transpose(variables[name].axes) for name, array in weights if name in variables
    }
    load_values(session, {name: variables[name].variable for name in values}, values)


def load_values(
    session: tf.compat.v1.Session, variables: Dict[str, tf.Variable], values: Dict[str, Any]
) -> None:
    """Copy NumPy arrays into the variables, in place of what their initializers would compute.

    In one run: each set of operations to run is prepared anew from the whole graph.
    """
    session.run(
        [variables[name].initializer for name in values],
        {variables[name].initializer.inputs[1]: array for name, array in values.items()},
    )


def make_loader(session: tf.compat.v1.Session, variables: Dict[str, tf.Variable]) -> Any:
    """What copies one array for each variable into it, in their order, in one run."""
    initializers = [variable.initializer for variable in variables.values()]
    return session.make_callable(
        initializers, feed_list=[initializer.inputs[1] for initializer in initializers]
    )
