/* libcudart: GPUs of REHEARSAL_CAPABILITY (80: A100, 90: H100), REHEARSAL_DEVICES of them. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* from data sheets, and "Technical Specifications per Compute Capability" in the CUDA guide */
struct model {
  int capability;
  const char *name;
  int processors, memory_bus_bits, clock_khz, memory_clock_khz;
  size_t l2, shared_per_processor, shared_per_block, memory_mib;
};
static const struct model MODELS[] = {
    {80, "A100 of the rehearsal", 108, 5120, 1410000, 1593000, 40 << 20, 167936, 166912, 81920},
    {90, "H100 of the rehearsal", 132, 5120, 1980000, 2619000, 50 << 20, 233472, 232448, 81559},
};

static long read_number(const char *name, long otherwise) {
  const char *told = getenv(name);
  return told ? atol(told) : otherwise;
}

static const struct model *find_model(void) {
  long capability = read_number("REHEARSAL_CAPABILITY", 90);
  for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
    if (MODELS[i].capability == capability) return &MODELS[i];
  fprintf(stderr, "rehearsal: no GPU of REHEARSAL_CAPABILITY=%ld is known\n", capability);
  exit(3);
}

size_t read_memory_bytes(void) {
  return (size_t)read_number("REHEARSAL_MEMORY_MIB", find_model()->memory_mib) << 20;
}

static int count_devices(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  int devices = read_number("REHEARSAL_DEVICES", 1);
  if (!visible) return devices;
  int named = *visible && *visible != '-';
  for (const char *at = visible; named && *at; at++) {
    if (*at == ',' && at[1] == '-') break;
    named += *at == ',';
  }
  return named < devices ? named : devices;
}

static __thread int current;
static __thread cudaError_t latest;

int rehearsal_device(void) { return current; }

cudaError_t fail(cudaError_t error) { return latest = error; }

cudaError_t cudaGetLastError(void) {
  cudaError_t error = latest;
  latest = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError(void) { return latest; }

const char *cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfRehearsal";
}

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    default: return "not known to the rehearsal";
  }
}

cudaError_t cudaGetDeviceCount(int *count) {
  *count = count_devices();
  return *count ? cudaSuccess : fail(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= count_devices()) return fail(cudaErrorInvalidDevice);
  current = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  *device = current;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *told, int device) {
  if (device < 0 || device >= count_devices()) return fail(cudaErrorInvalidDevice);
  const struct model *model = find_model();
  *told = (struct cudaDeviceProp){
      .totalGlobalMem = read_memory_bytes(), .sharedMemPerBlock = 49152, .regsPerBlock = 65536,
      .warpSize = 32, .memPitch = 2147483647, .maxThreadsPerBlock = 1024,
      .maxThreadsDim = {1024, 1024, 64}, .maxGridSize = {2147483647, 65535, 65535},
      .totalConstMem = 65536, .major = model->capability / 10, .minor = model->capability % 10,
      .textureAlignment = 512, .texturePitchAlignment = 32,
      .multiProcessorCount = model->processors, .canMapHostMemory = 1, .concurrentKernels = 1,
      .pciBusID = 16 + device, .asyncEngineCount = 3, .unifiedAddressing = 1,
      .memoryBusWidth = model->memory_bus_bits, .l2CacheSize = model->l2,
      .maxThreadsPerMultiProcessor = 2048, .streamPrioritiesSupported = 1,
      .sharedMemPerMultiprocessor = model->shared_per_processor,
      .regsPerMultiprocessor = 65536, .managedMemory = 1, .cooperativeLaunch = 1,
      .sharedMemPerBlockOptin = model->shared_per_block, .maxBlocksPerMultiProcessor = 32,
      .memoryPoolsSupported = 1, .clusterLaunch = model->capability >= 90};
  snprintf(told->name, sizeof told->name, "%s", model->name);
  told->uuid.bytes[15] = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp told;
  cudaError_t error = cudaGetDeviceProperties(&told, device);
  if (error) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = told.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: *value = told.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimY: *value = told.maxThreadsDim[1]; break;
    case cudaDevAttrMaxBlockDimZ: *value = told.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *value = told.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: *value = told.maxGridSize[1]; break;
    case cudaDevAttrMaxGridDimZ: *value = told.maxGridSize[2]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = told.sharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *value = told.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = told.regsPerBlock; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = told.regsPerMultiprocessor; break;
    case cudaDevAttrMultiProcessorCount: *value = told.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = told.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = told.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = told.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = told.sharedMemPerMultiprocessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = told.sharedMemPerBlockOptin; break;
    case cudaDevAttrL2CacheSize: *value = told.l2CacheSize; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = told.memoryBusWidth; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = told.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrClockRate: *value = find_model()->clock_khz; break;
    case cudaDevAttrMemoryClockRate: *value = find_model()->memory_clock_khz; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported: *value = 1; break;
    /* most attributes are flags of features, which are reported as missing */
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
  snprintf(text, length, "00000000:%02X:00.0", 16 + device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) { return cudaDriverGetVersion(version); }

cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result) {
  *function = dlsym(RTLD_DEFAULT, symbol);
  if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return *function ? cudaSuccess : fail(cudaErrorSymbolNotFound);
}
