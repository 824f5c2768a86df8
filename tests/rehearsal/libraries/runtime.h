/* Declarations that the parts of libcudart's stub share. */
#pragma once

#include <cuda_runtime_api.h>

#include "rehearsal.h"

/* store the error for cudaGetLastError, and return it */
cudaError_t fail(cudaError_t error);
size_t read_memory_bytes(void);
cudaError_t take_memory(void **start, size_t size, enum cudaMemoryType kind);
