"""Exceptions that mean out of memory, without the frameworks that raise them."""

import sys
from types import SimpleNamespace

import pytest

from dlperf_slurm.worker.failed_record import read_failures
from dlperf_slurm.worker.failures import report_failure
from dlperf_slurm.worker.frameworks import list_frameworks, load_adapter
from dlperf_slurm.worker.out_of_memory import OutOfMemory, is_out_of_memory

NCCL = (
    "NCCL error in: NCCLUtils.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
)
# in any framework
LIBRARIES = [
    "failed to allocate 2.00GiB from device: CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "Check failed: e == CUDNN_STATUS_SUCCESS (4 vs. 0) : CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cudaErrorMemoryAllocation: failed to allocate 4096 bytes",
    f"{NCCL}\nLast error:\nCuda failure 2 'out of memory'",
    f"{NCCL}\nLast error:\nCuda failure 'out of memory'",
    f"{NCCL}\nLast error:\nFailed to CUDA calloc async 608 bytes",
    "std::bad_alloc",
]
OTHERS = [
    "CUDNN_STATUS_EXECUTION_FAILED",
    f"{NCCL}\nLast error:\nCuda failure 1 'invalid argument'",
    "shapes (2, 3) and (4, 5) do not match",
]
# as JAX raises them, whose message is the status of XLA
XLA = [
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9.00MiB.",
    "INTERNAL: CUDA error: out of memory",
    "INTERNAL: No BLAS support for stream",
    "INTERNAL: Attempting to perform BLAS operation using StreamExecutor without BLAS support",
    "FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above.",
]
TORCH = [
    "CUDA error: out of memory",
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 1152921504606846976 bytes",
    "NVML_SUCCESS == DriverAPI::get()->nvmlDeviceGetHandleByPciBusId_v2_( pci_id, &handle) "
    "INTERNAL ASSERT FAILED at CUDACachingAllocator.cpp:1392, please report a bug.",
]


@pytest.mark.parametrize(
    ("message", "expected"),
    [(text, True) for text in LIBRARIES] + [(text, False) for text in OTHERS],
)
def test_library_without_memory_is_recognised_in_every_framework(message, expected, tmp_path):
    for framework in list_frameworks():
        signs = load_adapter(framework).OUT_OF_MEMORY
        assert is_out_of_memory(RuntimeError(message), signs) == expected, framework
    report_failure(tmp_path, 0, OutOfMemory(()), RuntimeError(message))
    (failure,) = read_failures(tmp_path)
    assert failure.is_out_of_memory == expected


@pytest.mark.parametrize(
    ("framework", "message"),
    [
        *(("jax", text) for text in XLA),
        *(("pytorch", text) for text in TORCH),
        ("oneflow", "Error! : Out of memory when allocate size : 8"),
    ],
)
def test_message_of_a_framework_is_recognised_in_its_own_exceptions_only(framework, message):
    signs = load_adapter(framework).OUT_OF_MEMORY
    assert is_out_of_memory(RuntimeError(message), signs)
    assert not is_out_of_memory(ValueError(message), signs)


@pytest.mark.parametrize("framework", list_frameworks())
def test_memory_error_and_its_consequences_are_out_of_memory(framework):
    signs = load_adapter(framework).OUT_OF_MEMORY
    late = ValueError("asynchronous error")
    late.__cause__ = MemoryError()
    assert is_out_of_memory(MemoryError(), signs)
    assert is_out_of_memory(late, signs)


def test_type_is_looked_up_where_its_package_is_imported(monkeypatch):
    class Exhausted(Exception):
        pass

    signs = OutOfMemory(("too much",), ("spin.errors.Other",), ("spin.errors.Exhausted",))
    assert not is_out_of_memory(Exhausted(), signs)
    errors = SimpleNamespace(Exhausted=Exhausted, Other=KeyError)
    monkeypatch.setitem(sys.modules, "spin", SimpleNamespace(errors=errors))
    assert is_out_of_memory(Exhausted(), signs)
    assert is_out_of_memory(KeyError("too much"), signs)
    assert not is_out_of_memory(KeyError("too little"), signs)
