"""A model's definition -> a pool of synthetic samples in memory, handed out one at a time."""

from typing import TYPE_CHECKING, Any, Dict

from dlperf_slurm.worker.data import make_batch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlperf_slurm.worker.models import Definition


class SyntheticSamples:
    """The samples of one rank's batch of `count`, as `worker.data` makes it, in each epoch.

    Reading one costs a copy and nothing else: what a data source adds to a step is its own.
    """

    def __init__(self, definition: "Definition", count: int, seed: int, rank: int = 0) -> None:
        self._pool = make_batch(definition, count, seed, rank)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read_sample(self, index: int, epoch: int) -> "Dict[str, NDArray[Any]]":
        """A new copy, as whoever decodes a file gets new memory too."""
        import numpy

        return {name: numpy.array(values[index]) for name, values in self._pool.items()}
