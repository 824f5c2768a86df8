"""Batches made by other processes, which send them through ZeroMQ pipes."""

import json
import multiprocessing
import os
import shutil
import signal
import tempfile
from importlib import import_module
from typing import TYPE_CHECKING, Any, Dict, Iterator, List

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import collate, order_samples
from dlperf_slurm.worker.processes import end_with_parent
from dlperf_slurm.worker.synthetic_batch import make_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.frameworks import Placement, Session

    Batch = Dict[str, NDArray[Any]]


def open_pipes(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    """`data_workers` producers take turns; each may be `prefetch_batches` ahead."""
    zmq: Any = import_module("zmq")
    folder = tempfile.mkdtemp(prefix="dlperf-")
    # spawned: a fork of a rank has its MPI, and a device that it may not use
    context = multiprocessing.get_context("spawn")
    pipes, producers = [], []
    try:
        for worker in range(case.axes.data_workers):
            address = f"ipc://{folder}/{worker}"
            pipe = zmq.Context.instance().socket(zmq.PULL)
            # what waits, waits at the producer
            pipe.set_hwm(1)
            pipe.bind(address)
            pipes.append(pipe)
            arguments = (case, placement, worker, address, os.getpid())
            producers.append(context.Process(target=produce, args=arguments, daemon=True))
            producers[-1].start()
        for number in range(len(order_samples(case))):
            worker = number % case.axes.data_workers
            yield session.stage(receive(pipes[worker], producers[worker]))
    finally:
        for producer in producers:
            producer.terminate()
        for pipe in pipes:
            pipe.close(linger=0)
        shutil.rmtree(folder, ignore_errors=True)


def produce(case: Case, placement: "Placement", worker: int, address: str, parent_id: int) -> None:
    """Send one worker's share of the batches, in a process of its own."""
    zmq: Any = import_module("zmq")
    end_with_parent(parent_id)
    dataset = make_samples(case, placement)
    pipe = zmq.Context.instance().socket(zmq.PUSH)
    pipe.set_hwm(case.axes.prefetch_batches)
    pipe.connect(address)
    for keys in order_samples(case)[worker :: case.axes.data_workers]:
        batch = collate([dataset.read_sample(index, epoch) for epoch, index in keys])
        pipe.send_multipart(pack(batch), copy=False)
    # The rank ends this process. If that ended by itself, the pipe would lose what the rank's end,
    # full already, has not read.
    signal.pause()


def receive(pipe: Any, producer: Any) -> "Batch":
    """The next batch; RuntimeError when its producer has ended instead."""
    while not pipe.poll(1000):
        if not producer.is_alive():
            raise RuntimeError(f"a producer of data 'zmq' ended with code {producer.exitcode}")
    return unpack(pipe.recv_multipart())


def pack(batch: "Batch") -> List[Any]:
    """A header, and the bytes of each array."""
    header = [[name, str(values.dtype), values.shape] for name, values in batch.items()]
    return [json.dumps(header).encode(), *batch.values()]


def unpack(frames: List[bytes]) -> "Batch":
    import numpy

    # bytearray: frameworks want to be able to write
    return {
        name: numpy.frombuffer(bytearray(data), dtype).reshape(shape)
        for (name, dtype, shape), data in zip(json.loads(frames[0]), frames[1:])
    }
