/* What the parts of libcudart's stand-in have of each other. */
#pragma once

#include <cuda_runtime_api.h>

#include "rehearsal.h"

/* remembers the error for cudaGetLastError, and returns it */
cudaError_t fail(cudaError_t error);
size_t read_memory_bytes(void);
cudaError_t take_memory(void **start, size_t size, enum cudaMemoryType kind);
