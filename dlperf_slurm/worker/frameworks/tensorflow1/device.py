"""A case -> TensorFlow's configuration, the device's name and versions, and values of variables."""

from typing import Any, Dict, Iterable, Tuple

import tensorflow as tf
from tensorflow.python.client import device_lib

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.tensorflow.layers import NamedVariable
from dlperf_slurm.worker.horovod import read_horovod_version


def make_config(case: Case, rank_info: RankInfo) -> tf.compat.v1.ConfigProto:
    """Make the tf.Session configuration of the case, for server and session: threads, GPU, XLA.

    A process keeps the thread pools of its first configuration.
    """
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=case.cpus_per_rank,
        # as in the default: threads that one operation leaves idle can run another
        inter_op_parallelism_threads=case.cpus_per_rank,
    )
    if case.axes.compiler == "xla":
        options = config.graph_options.optimizer_options
        options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
    if case.device == "cpu":
        config.device_count["GPU"] = 0
    else:
        config.gpu_options.visible_device_list = str(choose_gpu(rank_info))
        # leaves memory for NCCL's buffers
        config.gpu_options.allow_growth = True
        # for operations without a GPU kernel, such as the all-reduce of a Horovod built without
        # NCCL
        config.allow_soft_placement = True
    return config


def format_device(case: Case) -> str:
    """Return TensorFlow's name of the case's device: "/device:GPU:0" or "/device:CPU:0"."""
    return "/device:GPU:0" if case.device == "cuda" else "/device:CPU:0"


def choose_gpu(rank_info: RankInfo) -> int:
    """Return the index of this rank's GPU, to reserve no other; raises RuntimeError without one."""
    count = len(tf.config.experimental.list_physical_devices("GPU"))
    if count == 0:
        raise RuntimeError(
            "TensorFlow sees no GPU; check the driver, CUDA_VISIBLE_DEVICES and the build"
        )
    return rank_info.choose_gpu(count)


def read_device_name(device: str, config: tf.compat.v1.ConfigProto) -> str:
    if device == "cpu":
        return ""
    gpus = [d for d in device_lib.list_local_devices(config) if d.device_type == "GPU"]
    # "device: 0, name: Tesla V100-SXM2-16GB, pci bus id: 0000:00:1e.0, compute capability: 7.0"
    fields = dict(field.split(": ", 1) for field in gpus[0].physical_device_desc.split(", "))
    return fields["name"]


def read_versions(case: Case) -> Dict[str, str]:
    """Return the versions of TensorFlow, its git commit, and Horovod if used, but not of CUDA."""
    return {
        "tensorflow": str(tf.version.VERSION),
        "tensorflow_git": str(tf.version.GIT_VERSION),
        **read_horovod_version(case),
    }


def make_peak_memory(device: str) -> Any:
    """Return the operation that reads the peak of the device's allocator; None on the CPU."""
    if device == "cpu":
        return None
    from tensorflow.contrib.memory_stats import MaxBytesInUse

    return MaxBytesInUse()


def load_weights(
    session: tf.compat.v1.Session,
    variables: Dict[str, NamedVariable],
    weights: Iterable[Tuple[str, Any]],
) -> None:
    """Copy (name, array) pairs, in the definition's canonical layout, into the variables.

    Arrays without a variable are left out: on parameter servers, rank 0 loads the weights.
    """
    values = {
        name: array.transpose(variables[name].axes) for name, array in weights if name in variables
    }
    load_values(session, {name: variables[name].variable for name in values}, values)


def load_values(
    session: tf.compat.v1.Session, variables: Dict[str, tf.Variable], values: Dict[str, Any]
) -> None:
    """Copy NumPy arrays, `values` by name, into the variables of these names.

    In one run, because TensorFlow prepares each new set of operations from the whole graph.
    """
    session.run(
        [variables[name].initializer for name in values],
        {variables[name].initializer.inputs[1]: array for name, array in values.items()},
    )


def make_loader(session: tf.compat.v1.Session, variables: Dict[str, tf.Variable]) -> Any:
    """Return a function that copies one array into each variable, in dict order, in one run."""
    initializers = [variable.initializer for variable in variables.values()]
    return session.make_callable(
        initializers, feed_list=[initializer.inputs[1] for initializer in initializers]
    )
