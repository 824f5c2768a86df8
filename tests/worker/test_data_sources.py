"""Where batches come from: each data source that a matrix may name has its generator."""

from support import attempts
from support.cases import vary

from dlperf_slurm.contract.axes import DATA_SOURCES, ON_DEVICE
from dlperf_slurm.worker.data_sources import SOURCES, open_batches


def test_every_data_source_has_a_generator_but_the_batch_on_the_device():
    assert {*SOURCES} == {*DATA_SOURCES} - {ON_DEVICE}


def test_batch_on_the_device_has_no_source():
    assert open_batches(vary(attempts.CASE, data=ON_DEVICE), None, None) is None
