"""An error of a GPU library that got no memory is a lack of memory, in whatever framework."""

import pytest

from dlperf_slurm.worker.failed_record import read_failures
from dlperf_slurm.worker.failures import LIBRARY_MEMORY_SIGNS, report_failure


# as torch, MXNet and Paddle have them
@pytest.mark.parametrize(
    ("message", "is_out_of_memory"),
    [
        *((f"cuDNN error: {sign} when calling it", True) for sign in LIBRARY_MEMORY_SIGNS),
        ("Check failed: e == CUDNN_STATUS_SUCCESS (4 vs. 0) : CUDNN_STATUS_ALLOC_FAILED", True),
        ("CUDNN_STATUS_EXECUTION_FAILED", False),
    ],
)
def test_library_that_got_no_memory_has_run_out_of_it(message, is_out_of_memory, tmp_path):
    report_failure(tmp_path, 0, None, RuntimeError(message))
    (failure,) = read_failures(tmp_path)
    assert failure.is_out_of_memory == is_out_of_memory
