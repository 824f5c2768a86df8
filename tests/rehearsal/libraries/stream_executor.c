/* libcuda: driver functions that TensorFlow's StreamExecutor calls where torch calls the runtime.
 *
 * They call the stub of the runtime, whose handles are valid for the driver. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "rehearsal.h"

enum { HANDLE = 64 };
/* error codes of the runtime are those of the driver */
#define ASK(call) return (CUresult)(call)
#define AT(address) ((void *)(address))

CUresult cuDeviceGetCount(int *count) { ASK(cudaGetDeviceCount(count)); }
CUresult cuDeviceGet(CUdevice *device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  struct cudaDeviceProp told;
  cudaError_t error = cudaGetDeviceProperties(&told, device);
  if (!error) snprintf(name, length, "%s", told.name);
  ASK(error);
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ASK(cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device));
}
CUresult cuDeviceTotalMem(size_t *total, CUdevice device) {
  size_t free;
  ASK(cudaMemGetInfo(&free, total));
}
CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  ASK(cudaDeviceGetPCIBusId(text, length, device));
}
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  ASK(cudaDeviceCanAccessPeer(can, device, peer));
}
CUresult cuCtxGetDevice(CUdevice *device) { ASK(cudaGetDevice(device)); }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  return cuCtxGetCurrent(context);
}

CUresult cuMemGetInfo(size_t *free, size_t *total) { ASK(cudaMemGetInfo(free, total)); }
CUresult cuMemAlloc(CUdeviceptr *start, size_t size) { ASK(cudaMalloc((void **)start, size)); }
CUresult cuMemFree(CUdeviceptr start) { ASK(cudaFree(AT(start))); }
CUresult cuMemHostAlloc(void **start, size_t size, unsigned flags) {
  ASK(cudaHostAlloc(start, size, flags));
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
  ASK(cudaMemcpyAsync(AT(to), from, size, cudaMemcpyHostToDevice, stream));
}
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t size, CUstream stream) {
  ASK(cudaMemcpyAsync(to, AT(from), size, cudaMemcpyDeviceToHost, stream));
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
  ASK(cudaMemcpyAsync(AT(to), AT(from), size, cudaMemcpyDeviceToDevice, stream));
}
/* sets only the lowest 8 of 32 bits, as no one reads the values */
CUresult cuMemsetD32Async(CUdeviceptr start, unsigned value, size_t count, CUstream stream) {
  ASK(cudaMemsetAsync(AT(start), value & 0xFF, 4 * count, stream));
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  struct cudaPointerAttributes told;
  cudaError_t error = cudaPointerGetAttributes(&told, AT(address));
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *(int *)value = told.type; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)value = told.device; break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(int *)value = 0; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
  ASK(error);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
  ASK(cudaStreamCreateWithPriority(stream, flags, 0));
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  ASK(cudaStreamIsCapturing(stream, (enum cudaStreamCaptureStatus *)status));
}
CUresult cuStreamSynchronize(CUstream stream) { ASK(cudaStreamSynchronize(stream)); }
CUresult cuEventCreate(CUevent *event, unsigned flags) {
  ASK(cudaEventCreateWithFlags(event, flags));
}
CUresult cuEventRecord(CUevent event, CUstream stream) { ASK(cudaEventRecord(event, stream)); }
CUresult cuEventQuery(CUevent event) { return CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent event) { ASK(cudaEventSynchronize(event)); }
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  ASK(cudaEventElapsedTime(milliseconds, start, end));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = calloc(1, HANDLE);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ASK(cudaLibraryGetKernel((cudaKernel_t *)function, NULL, name));
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared, CUstream stream,
                        void **arguments, void **extra) {
  dim3 grid = {x, y, z}, block = {block_x, block_y, block_z};
  ASK(cudaLaunchKernel(function, grid, block, arguments, shared, stream));
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  struct cudaFuncAttributes told;
  cudaError_t error = cudaFuncGetAttributes(&told, function);
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = told.maxThreadsPerBlock; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = told.numRegs; break;
    default: *value = 0;
  }
  ASK(error);
}
