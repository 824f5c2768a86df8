"""An error of a GPU library that got no memory is a lack of memory, in whatever framework."""

import pytest

from dlperf_slurm.worker.failed_record import read_failures
from dlperf_slurm.worker.failures import report_failure
from dlperf_slurm.worker.out_of_memory import OutOfMemory


# as torch, MXNet and Paddle have them
@pytest.mark.parametrize(
    ("message", "is_out_of_memory"),
    [
        ("failed to allocate 2.00GiB from device: CUDA_ERROR_OUT_OF_MEMORY", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("Check failed: e == CUDNN_STATUS_SUCCESS (4 vs. 0) : CUDNN_STATUS_ALLOC_FAILED", True),
        ("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True),
        ("cudaErrorMemoryAllocation: failed to allocate 4096 bytes", True),
        ("CUDNN_STATUS_EXECUTION_FAILED", False),
    ],
)
def test_library_that_got_no_memory_has_run_out_of_it(message, is_out_of_memory, tmp_path):
    report_failure(tmp_path, 0, OutOfMemory(()), RuntimeError(message))
    (failure,) = read_failures(tmp_path)
    assert failure.is_out_of_memory == is_out_of_memory
