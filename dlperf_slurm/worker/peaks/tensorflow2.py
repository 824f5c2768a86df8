"""TensorFlow 2's matrix product, and a copy that is not optimized away."""

from typing import Any

import tensorflow as tf

from dlperf_slurm.worker.peaks import Operation, PeakSettings


def make_product(setting: PeakSettings, size: int) -> Operation:
    configure(setting)
    matrix = tf.cast(tf.random.normal((size, size)), setting.type_name)
    return Operation(lambda: tf.linalg.matmul(matrix, matrix), wait)


def make_copy(setting: PeakSettings, count: int) -> Operation:
    array = tf.ones(count)
    return Operation(lambda: tf.math.negative(array), wait)


def configure(setting: PeakSettings) -> None:
    """Set TF32, and at the first call also threads, memory growth, and one GPU or none.

    The first call must come before TensorFlow's first operation.
    """
    if not tf.config.threading.get_intra_op_parallelism_threads():
        tf.config.threading.set_intra_op_parallelism_threads(setting.cpus)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        gpus = tf.config.list_physical_devices("GPU") if setting.device == "cuda" else []
        tf.config.set_visible_devices(gpus[:1], "GPU")
        for gpu in gpus[:1]:
            tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(setting.number_format == "tf32")


def wait(result: Any) -> None:
    """Wait until `result`, and all work before it, is computed, by reading one of its values."""
    tf.reshape(result, [-1])[0].numpy()
