/* libcudart: kernels are traced by the names that nvcc registers when launched, and never run. */
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

enum { BUCKETS = 1 << 16, HANDLE = 64, KERNEL_NS = 5000, REGISTERS = 32, LARGEST_GRID_YZ = 65535 };

struct kernel {
  const void *host;
  const char *name;
  struct kernel *next;
};
static struct kernel *kernels[BUCKETS];

static struct kernel **find_place(const void *host) {
  return &kernels[((size_t)host >> 4) % BUCKETS];
}

static const char *find_name(const void *host) {
  for (struct kernel *one = *find_place(host); one; one = one->next)
    if (one->host == host) return one->name;
  return "without-a-name";
}

/* called by nvcc's code when a library is loaded */
void **__cudaRegisterFatBinary(void *binary) { return calloc(1, HANDLE); }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int is_external,
                       size_t size, int is_constant, int is_global) {}
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, void *thread, void *block, void *block_size,
                            void *grid_size, int *warp) {
  struct kernel *kernel = malloc(sizeof *kernel), **place = find_place(host);
  *kernel = (struct kernel){host, name, *place};
  *place = kernel;
}

/* called by nvcc's code around each <<<...>>> */
static __thread struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} pushed;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                     struct CUstream_st *stream) {
  pushed.grid = grid;
  pushed.block = block;
  pushed.shared = shared;
  pushed.stream = stream;
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  *grid = pushed.grid;
  *block = pushed.block;
  *shared = pushed.shared;
  *(void **)stream = pushed.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
  *kernel = (cudaKernel_t)host;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream) {
  int most_shared = 0;
  const char *name = find_name(kernel);
  cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, rehearsal_device());
  int is_sound = grid.x && grid.y && grid.z && grid.y <= LARGEST_GRID_YZ &&
                 grid.z <= LARGEST_GRID_YZ && block.x && block.y && block.z &&
                 block.x * block.y * block.z <= 1024 && shared <= (size_t)most_shared;
  if (!is_sound) {
    rehearsal_record("invalid name=%s", name);
    return fail(cudaErrorInvalidConfiguration);
  }
  rehearsal_record("kernel device=%d name=%s", rehearsal_device(), name);
  rehearsal_work(KERNEL_NS);
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream) {
  return __cudaLaunchKernel((cudaKernel_t)host, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *host,
                                void **arguments) {
  return cudaLaunchKernel(host, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                                        size_t shared, cudaStream_t stream) {
  return cudaLaunchKernel(host, grid, block, arguments, shared, stream);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *function, const void *host) {
  *function = (cudaFunction_t)host;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *told, const void *host) {
  int major = 0, minor = 0, shared = 0, device = rehearsal_device();
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  *told = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = REGISTERS,
                                      .ptxVersion = 10 * major + minor,
                                      .binaryVersion = 10 * major + minor,
                                      .maxDynamicSharedSizeBytes = shared};
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *host, int threads, size_t shared, unsigned flags) {
  *blocks = 2;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host,
                                                          int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *options, void **values, unsigned count,
                                enum cudaLibraryOption *library_options, void **library_values,
                                unsigned library_count) {
  *library = calloc(1, HANDLE);
  return cudaSuccess;
}
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  const char *host = strdup(name);
  __cudaRegisterFunction(NULL, host, NULL, host, 0, NULL, NULL, NULL, NULL, NULL);
  *kernel = (cudaKernel_t)host;
  return cudaSuccess;
}
