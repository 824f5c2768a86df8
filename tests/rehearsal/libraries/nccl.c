/* libnccl: collectives are traced; ranks do not communicate, a gather repeats a rank's data. */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "rehearsal.h"

enum { COLLECTIVE_NS = 50000, LARGEST_GATHER = 1 << 20 };

struct ncclComm {
  int ranks, rank, device;
};

static size_t measure(ncclDataType_t type) {
  switch (type) {
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    case ncclFloat16: case ncclBfloat16: return 2;
    default: return 1;
  }
}

static ncclResult_t make(ncclComm_t *made, int ranks, int rank) {
  *made = malloc(sizeof **made);
  **made = (struct ncclComm){ranks, rank, rehearsal_device()};
  return ncclSuccess;
}

ncclResult_t ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t result) { return "of the rehearsal"; }
const char *ncclGetLastError(ncclComm_t comm) { return "of the rehearsal"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 1, sizeof *id);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t *made, int ranks, ncclUniqueId id, int rank) {
  return make(made, ranks, rank);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t *made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
  return make(made, ranks, rank);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t *made, int ranks, int rank, int ids,
                                      ncclUniqueId *id, ncclConfig_t *config) {
  return make(made, ranks, rank);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *ranks) {
  *ranks = comm->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  *device = comm->device;
  return ncclSuccess;
}

static ncclResult_t record(const char *by, size_t count, ncclDataType_t type, ncclComm_t comm) {
  rehearsal_record("collective by=%s type=%d bytes=%zu ranks=%d device=%d", by, type,
                   count * measure(type), comm->ranks, comm->device);
  rehearsal_work(COLLECTIVE_NS);
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return record(__func__, count, type, comm);
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return record(__func__, count, type, comm);
}
ncclResult_t ncclBcast(void *values, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return record(__func__, count, type, comm);
}
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return record(__func__, count, type, comm);
}
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  size_t bytes = count * measure(type);
  for (int rank = 0; rank < comm->ranks && bytes <= LARGEST_GATHER; rank++)
    memmove((char *)to + rank * bytes, from, bytes);
  return record(__func__, count, type, comm);
}
