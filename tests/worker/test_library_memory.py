"""An error of a GPU library that got no memory is a lack of memory, in whatever framework."""

import pytest

from dlperf_slurm.worker.failed_record import read_failures
from dlperf_slurm.worker.failures import report_failure

# as torch, MXNet and Paddle have them
ERRORS = [
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "Check failed: e == CUDNN_STATUS_SUCCESS (4 vs. 0) : cuDNN: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cudaErrorMemoryAllocation: failed to allocate 4096 bytes",
]


@pytest.mark.parametrize("message", ERRORS)
def test_library_that_got_no_memory_has_run_out_of_it(message, tmp_path):
    report_failure(tmp_path, 0, None, RuntimeError(message))
    (failure,) = read_failures(tmp_path)
    assert failure.is_out_of_memory


def test_library_that_failed_of_something_else_has_not(tmp_path):
    report_failure(tmp_path, 0, None, RuntimeError("CUDNN_STATUS_EXECUTION_FAILED"))
    (failure,) = read_failures(tmp_path)
    assert not failure.is_out_of_memory
