"""The data sources of a case: where its batches come from, named as in `axes.data`.

Each source is a generator of staged batches for `session.load`: as many as the case's steps take,
and without end where the same batch is copied again.
"""

import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from importlib import import_module
from itertools import islice
from queue import Queue
from typing import Any, Callable, Dict, Iterator, List, Optional

from dlperf_slurm.contract.axes import DALI, FOLDER, ON_DEVICE, ON_HOST, PIPELINE, PYTHON_QUEUE, ZMQ
from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Arrays
from dlperf_slurm.worker.datasets import Dataset, open_dataset
from dlperf_slurm.worker.datasets.batches import FileOrder, collate, count_batches, order_samples
from dlperf_slurm.worker.datasets.description import TRAIN_SPLIT
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.models import load_model
from dlperf_slurm.worker.processes import end_with_parent
from dlperf_slurm.worker.session import Keys, Session
from dlperf_slurm.worker.synthetic_batch import make_batch, make_samples


def open_batches(case: Case, rank_info: RankInfo, session: Session) -> Optional[Iterator[Any]]:
    """Return an iterator over batches of the case's data source, each as `session.load` takes it.

    None for data on the device: the session's own batch is used then.
    """
    if case.axes.data == ON_DEVICE:
        return None
    return SOURCES[case.axes.data](case, rank_info, session)


def open_host_batch(case: Case, rank_info: RankInfo, session: Session) -> Iterator[Any]:
    """Yield the same staged batch (host memory) without end: each step copies it to the device."""
    definition = load_model(case.model).Definition(**case.model_parameters)
    batch = make_batch(definition, case.axes.batch_size, case.seed, rank_info.rank)
    staged = session.stage(batch)
    while True:
        yield staged


def open_pipeline(case: Case, rank_info: RankInfo, session: Session) -> Iterator[Any]:
    """Yield batches of synthetic samples, made by the framework's own input pipeline."""
    yield from session.open_pipeline(make_samples(case, rank_info), order_samples(case))


def open_folder(case: Case, rank_info: RankInfo, session: Session) -> Iterator[Any]:
    """Yield batches from files, read by the framework's own input pipeline.

    Raises DataError if the files cannot be used, or are fewer than one step takes.
    """
    dataset = open_dataset(case, TRAIN_SPLIT)
    order = FileOrder(case, rank_info, len(dataset), count_batches(case))
    yield from session.open_pipeline(dataset, order)


def open_dali(case: Case, rank_info: RankInfo, session: Session) -> Iterator[Any]:
    """Yield batches of the case's images, read and augmented by NVIDIA DALI; for PyTorch only."""
    # only adapters that support "dali" have this method
    pipeline: Any = session
    yield from islice(pipeline.open_dali(rank_info), count_batches(case))


def open_queues(case: Case, rank_info: RankInfo, session: Session) -> Iterator[Any]:
    """Yield synthetic batches that `data_workers` threads make, `prefetch_batches` ahead each."""
    dataset, order = make_samples(case, rank_info), order_samples(case)
    workers = case.axes.data_workers
    queues: List["Queue[Any]"] = [Queue(case.axes.prefetch_batches) for _ in range(workers)]
    for worker, queue in enumerate(queues):
        batches = map(session.stage, make_batches(dataset, order[worker::workers]))
        threading.Thread(target=fill, args=(queue, batches), daemon=True).start()
    for number in range(len(order)):
        item = queues[number % workers].get()
        if isinstance(item, Exception):
            raise item
        yield item


def make_batches(dataset: Dataset, order: List[Keys]) -> Iterator[Arrays]:
    """Yield the batch of each list of keys in `order`; a key is (epoch, sample index)."""
    for keys in order:
        yield collate([dataset.read_sample(index, epoch) for epoch, index in keys])


def fill(queue: "Queue[Any]", batches: Iterator[Any]) -> None:
    """Put all batches into the queue; after an error put the exception, which the reader raises."""
    try:
        for batch in batches:
            queue.put(batch)
    except Exception as error:
        queue.put(error)


def open_pipes(case: Case, rank_info: RankInfo, session: Session) -> Iterator[Any]:
    """Yield synthetic batches that `data_workers` processes prepare and send in turn over ZeroMQ.

    Each process may be `prefetch_batches` batches ahead.
    """
    zmq: Any = import_module("zmq")
    folder = tempfile.mkdtemp(prefix="dlperf-")
    # spawned, because a forked rank would inherit MPI, and a device that it must not use
    context = multiprocessing.get_context("spawn")
    pipes, producers = [], []
    try:
        for worker in range(case.axes.data_workers):
            address = f"ipc://{folder}/{worker}"
            pipe = zmq.Context.instance().socket(zmq.PULL)
            # receive at most one batch ahead: the others wait at the producer
            pipe.set_hwm(1)
            pipe.bind(address)
            pipes.append(pipe)
            arguments = (case, rank_info, worker, address, os.getpid())
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


def produce(case: Case, rank_info: RankInfo, worker: int, address: str, parent_id: int) -> None:
    """Send every `data_workers`-th batch of a rank to it; runs in its own process.

    `worker` is the number of the first batch, `address` the ZeroMQ address on which the rank
    receives, `parent_id` the PID of the rank.
    """
    zmq: Any = import_module("zmq")
    end_with_parent(parent_id)
    dataset = make_samples(case, rank_info)
    pipe = zmq.Context.instance().socket(zmq.PUSH)
    pipe.set_hwm(case.axes.prefetch_batches)
    pipe.connect(address)
    for batch in make_batches(dataset, order_samples(case)[worker :: case.axes.data_workers]):
        pipe.send_multipart(pack(batch), copy=False)
    # The rank kills this process. If the process ended by itself, ZeroMQ would drop batches that
    # the rank's full queue has not accepted yet.
    signal.pause()


def receive(pipe: Any, producer: Any) -> Arrays:
    """Return the next batch, name -> NumPy array, from a ZeroMQ socket.

    Raises RuntimeError if the multiprocessing.Process `producer`, which sends the batches, ended.
    """
    while not pipe.poll(1000):
        if not producer.is_alive():
            raise RuntimeError(
                "a process that makes batches (data = 'zmq') ended with exit code "
                f"{producer.exitcode}; its output is in the task's logs"
            )
    return unpack(pipe.recv_multipart())


def pack(batch: Arrays) -> List[Any]:
    """Return a batch as ZeroMQ frames: a JSON header of names, types, shapes, then each array."""
    header = [[name, str(values.dtype), values.shape] for name, values in batch.items()]
    return [json.dumps(header).encode(), *batch.values()]


def unpack(frames: List[bytes]) -> Arrays:
    import numpy

    # bytearray, because frameworks need writable memory
    return {
        name: numpy.frombuffer(bytearray(data), dtype).reshape(shape)
        for (name, dtype, shape), data in zip(json.loads(frames[0]), frames[1:])
    }


SOURCES: Dict[str, Callable[[Case, RankInfo, Session], Iterator[Any]]] = {
    ON_HOST: open_host_batch,
    PIPELINE: open_pipeline,
    PYTHON_QUEUE: open_queues,
    ZMQ: open_pipes,
    FOLDER: open_folder,
    DALI: open_dali,
}
