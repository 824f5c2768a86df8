"""A case -> TensorFlow's settings, the device's name and versions, and values of variables."""

from typing import Any, Dict, Iterable, Tuple

import tensorflow as tf

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks.tensorflow.layers import NamedVariable
from dlperf_slurm.worker.horovod import read_horovod_version


def set_up(case: Case, rank_info: RankInfo) -> None:
    """Set CPU threads, device and TF32 as the case asks, before TensorFlow computes anything."""
    tf.config.threading.set_intra_op_parallelism_threads(case.cpus_per_rank)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    choose_device(case, rank_info)
    tf.config.experimental.enable_tensor_float_32_execution(case.axes.precision == "tf32")


def choose_device(case: Case, rank_info: RankInfo) -> None:
    """Make only this rank's GPU visible, or none for a case on CPUs.

    TensorFlow would reserve memory on all GPUs. Raises RuntimeError if there is no GPU to use.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if case.device == "cpu":
        tf.config.set_visible_devices([], "GPU")
        return
    if not gpus:
        raise RuntimeError(
            "TensorFlow sees no GPU; check the driver, CUDA_VISIBLE_DEVICES and the build"
        )
    gpu = gpus[rank_info.choose_gpu(len(gpus))]
    tf.config.set_visible_devices([gpu], "GPU")
    # leaves memory for NCCL's buffers
    tf.config.experimental.set_memory_growth(gpu, True)


def read_device_name(device: str) -> str:
    if device == "cuda":
        gpu = tf.config.get_visible_devices("GPU")[0]
        return str(tf.config.experimental.get_device_details(gpu)["device_name"])
    return ""


def read_versions(case: Case) -> Dict[str, str]:
    versions = {"tensorflow": str(tf.__version__)}
    build = tf.sysconfig.get_build_info()
    for name, key in (("cuda", "cuda_version"), ("cudnn", "cudnn_version")):
        if case.device == "cuda" and key in build:
            versions[name] = str(build[key])
    return {**versions, **read_horovod_version(case)}


def load_weights(variables: Dict[str, NamedVariable], weights: Iterable[Tuple[str, Any]]) -> None:
    """Copy (name, array) pairs, in the definition's canonical layout, into the variables."""
    for name, values in weights:
        variable, axes = variables[name]
        variable.assign(values.transpose(axes))
