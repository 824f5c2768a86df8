"""Where batches come from: each data source that a matrix may name has its generator."""

from dlperf_slurm.contract.axes import DATA_SOURCES, ON_DEVICE
from dlperf_slurm.worker.data_sources import SOURCES


def test_every_data_source_has_a_generator_but_the_batch_on_the_device():
    assert {*SOURCES} == {*DATA_SOURCES} - {ON_DEVICE}
