"""A model's definition -> a synthetic batch of NumPy arrays, the same in every framework."""

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.annotations import Arrays
from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.models import Network, load_model


def make_batch(definition: Network, batch_size: int, seed: int, rank: int) -> Arrays:
    """Return a rank's synthetic batch, name -> array [batch_size, ...].

    It has samples rank * batch_size and following of one endless stream. So the batches of all
    ranks together are rank 0's batch for `world_size * batch_size`. The same arguments give the
    same bits in every environment. `seed` and all sample numbers must be in 0 ... 2**32 - 1.
    """
    import numpy

    # one sample at a time: the generator's float64 would need twice the memory of the images
    batch: Arrays = {}
    for index in range(batch_size):
        # RandomState's streams are frozen (NEP 19); Generator's may change between NumPy versions.
        random = numpy.random.RandomState([seed, rank * batch_size + index])
        for name, value in definition.make_sample(random).items():
            if name not in batch:
                batch[name] = numpy.empty((batch_size, *value.shape), value.dtype)
            batch[name][index] = value
    return batch


class SyntheticSamples:
    """A data set whose samples are those of one rank's `make_batch`, the same in each epoch.

    Reading a sample costs one copy, so that the time a data source adds to a step is its own.
    """

    def __init__(self, definition: Network, count: int, seed: int, rank: int = 0) -> None:
        self._pool = make_batch(definition, count, seed, rank)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def read_sample(self, index: int, epoch: int) -> Arrays:
        """Return a new copy of a sample, name -> array, as decoding a file would use new memory."""
        import numpy

        return {name: numpy.array(values[index]) for name, values in self._pool.items()}


def make_samples(case: Case, rank_info: RankInfo) -> SyntheticSamples:
    """Return the samples of this rank's own batch, for data sources without files."""
    definition = load_model(case.model).Definition(**case.model_parameters)
    return SyntheticSamples(definition, case.axes.batch_size, case.seed, rank_info.rank)
