"""Settings -> tensorpack's InputSource of synthetic batches.

Images are uint8, as from loaders of real images; the model converts them to float on the device.
"""

import multiprocessing
import os
from typing import List

import tensorflow as tf
from tensorpack.dataflow import FakeData, send_dataflow_zmq
from tensorpack.input_source import (
    DummyConstantInput,
    InputSource,
    QueueInput,
    StagingInput,
    TensorInput,
    TFDatasetInput,
    ZMQInput,
)

from dlperf_slurm.contract.axes import ON_DEVICE, ON_HOST, PIPELINE, PYTHON_QUEUE, ZMQ
from dlperf_slurm.worker.scripts.tensorpack import Settings

TYPES = (tf.uint8, tf.int32)
PREFETCH_BATCHES = 50


def make_input(settings: Settings) -> InputSource:
    """Make tensorpack's source of batches; most sources prepare each batch one step ahead.

    Only a constant on the device and a plain queue do not.
    """
    if settings.data == ON_DEVICE:
        return DummyConstantInput(_list_shapes(settings))
    if settings.data == ON_HOST:
        return StagingInput(TensorInput(lambda: _make_random_batch(settings)))
    if settings.data == PIPELINE:
        dataset = TFDatasetInput.dataflow_to_dataset(_make_dataflow(settings), TYPES)
        return StagingInput(TFDatasetInput(dataset.repeat().prefetch(PREFETCH_BATCHES)))
    if settings.data == ZMQ:
        return StagingInput(ZMQInput(_start_producer(settings), PREFETCH_BATCHES))
    queue = QueueInput(_make_dataflow(settings), tf.queue.FIFOQueue(PREFETCH_BATCHES, TYPES))
    return StagingInput(queue) if settings.data == PYTHON_QUEUE else queue


def find_missing_operators() -> str:
    """Describe what ZMQInput needs and this environment lacks; "" if nothing."""
    try:
        import zmq_ops
    except ImportError:
        lack = "this environment has no package zmq_ops"
    else:
        if hasattr(zmq_ops, "ZMQPullSocket"):
            return ""
        lack = "this environment has another package of the name zmq_ops"
    return (
        f"--data {ZMQ}: {lack}; ZMQInput needs https://github.com/tensorpack/zmq_ops, built with "
        "this TensorFlow"
    )


def _list_shapes(settings: Settings) -> List[List[int]]:
    return [list(settings.image_shape), [settings.batch_size_per_device]]


def _make_random_batch(settings: Settings) -> List[tf.Tensor]:
    """Make tensors of images and labels, which TensorFlow draws on the host in each step."""
    images, labels = _list_shapes(settings)
    classes = settings.definition.classes
    with tf.device("/cpu:0"):
        return [
            tf.cast(tf.random.uniform(images, 0, 256, tf.int32), tf.uint8),
            tf.random.uniform(labels, 0, classes, tf.int32),
        ]


def _make_dataflow(settings: Settings) -> FakeData:
    """Make a dataflow that repeats one batch, so that the cost is the copy, not the drawing."""
    domain = [(0, 256), (0, settings.definition.classes)]
    return FakeData(_list_shapes(settings), random=False, dtype=["uint8", "int32"], domain=domain)


def _start_producer(settings: Settings) -> str:
    """Start a process that sends batches as long as this one lives; return its ZMQ address."""
    # an abstract socket leaves no file behind
    address = f"ipc://@dlperf-slurm-{os.getpid()}"
    # fork is unsafe with the threads of MPI and TensorFlow
    context = multiprocessing.get_context("spawn")
    arguments = (_make_dataflow(settings), address, PREFETCH_BATCHES, "zmq_ops")
    context.Process(target=send_dataflow_zmq, args=arguments, daemon=True).start()
    return address
