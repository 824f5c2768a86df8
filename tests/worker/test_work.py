"""What sessions of several frameworks share: Horovod, and the choice of a GPU."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from support import attempts

from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.horovod import join_horovod, read_horovod_version

PLACEMENT = RankInfo(1, 1, 2, "here", "127.0.0.1", 0)


def test_horovod_that_sees_other_ranks_than_mpi_is_an_error():
    seen = SimpleNamespace(init=lambda: None, size=lambda: 1)
    with pytest.raises(RuntimeError, match=r"Horovod sees 1 rank\(s\).* MPI has 2"):
        join_horovod(seen, PLACEMENT)
    join_horovod(seen, replace(PLACEMENT, world_size=1))
    assert read_horovod_version(attempts.CASE) == {}


@pytest.mark.parametrize(("visible", "number"), [(1, 0), (4, 1)])
def test_rank_that_sees_one_gpu_takes_that_one(visible, number):
    assert PLACEMENT.choose_gpu(visible) == number
