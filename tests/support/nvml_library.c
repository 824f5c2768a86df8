/* A stub of libnvidia-ml.so.1 with eight H100, the first with a MIG instance, for tests.
 * A handle is the number of the GPU plus 1; that of the instance is MIG. Other functions are
 * missing, as in the library of an old driver. Types and codes are those of nvml.h. */
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };
/* FIRST_BUS: the PCI bus of the first GPU, as in tests/rehearsal */
enum { GPUS = 8, MIG = 100, FIRST_BUS = 16 };

typedef unsigned long long Bytes;

static long find_number(void *handle) { return (long)handle - 1; }

int nvmlInitWithFlags(unsigned flags) { return SUCCESS; }
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return "an error"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = GPUS;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (index >= GPUS) return INVALID_ARGUMENT;
  *handle = (void *)(long)(index + 1);
  return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) {
  if ((long)handle == MIG) snprintf(uuid, length, "MIG-1");
  else snprintf(uuid, length, "GPU-%ld", find_number(handle));
  return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  int number;
  if (strcmp(uuid, "MIG-1") == 0) *handle = (void *)(long)MIG;
  else if (sscanf(uuid, "GPU-%d", &number) == 1) *handle = (void *)(long)(number + 1);
  else return NOT_FOUND;
  return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
  snprintf(name, length, "NVIDIA H100");
  return SUCCESS;
}

/* in mW, different for each GPU */
int nvmlDeviceGetPowerUsage(void *handle, unsigned *power) {
  *power = 500000 + 1000 * find_number(handle);
  return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
  *celsius = 61;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, Bytes *memory) {
  memory[0] = 80ULL << 30;
  memory[1] = 30ULL << 30;
  memory[2] = 50ULL << 30;
  return SUCCESS;
}

/* torch calls these when it reports out of memory */
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **handle) {
  unsigned bus;
  if (sscanf(id, "%*x:%x", &bus) != 1 || bus < FIRST_BUS) return NOT_FOUND;
  return nvmlDeviceGetHandleByIndex_v2(bus - FIRST_BUS, handle);
}
int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *processes) {
  *count = 0;
  return SUCCESS;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, int *type) {
  return INVALID_ARGUMENT;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, void *place) {
  return INVALID_ARGUMENT;
}
int nvmlDeviceGetGpuFabricInfoV(void *handle, void *fabric) { return INVALID_ARGUMENT; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13000;
  return SUCCESS;
}
