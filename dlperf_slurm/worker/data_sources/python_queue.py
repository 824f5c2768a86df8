"""Batches made by threads of Python, which a queue holds until a step takes them."""

import threading
from queue import Queue
from typing import TYPE_CHECKING, Any, Iterator, List

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.datasets.batches import collate, order_samples
from dlperf_slurm.worker.synthetic_batch import make_samples

if TYPE_CHECKING:
    from dlperf_slurm.worker.datasets import Dataset
    from dlperf_slurm.worker.frameworks import Keys, Placement, Session


def open_queues(case: Case, placement: "Placement", session: "Session") -> Iterator[Any]:
    """`data_workers` threads take turns; each has a queue of `prefetch_batches`."""
    dataset, order = make_samples(case, placement), order_samples(case)
    workers = case.axes.data_workers
    queues: List["Queue[Any]"] = [Queue(case.axes.prefetch_batches) for _ in range(workers)]
    for worker, queue in enumerate(queues):
        batches = produce(dataset, order[worker::workers], session)
        threading.Thread(target=fill, args=(queue, batches), daemon=True).start()
    for number in range(len(order)):
        item = queues[number % workers].get()
        if isinstance(item, Exception):
            raise item
        yield item


def produce(dataset: "Dataset", order: "List[Keys]", session: "Session") -> Iterator[Any]:
    for keys in order:
        samples = [dataset.read_sample(index, epoch) for epoch, index in keys]
        yield session.stage(collate(samples))


def fill(queue: "Queue[Any]", batches: Iterator[Any]) -> None:
    """Put all batches into the queue, or what went wrong, for the rank to raise."""
    try:
        for batch in batches:
            queue.put(batch)
    except Exception as error:
        queue.put(error)
