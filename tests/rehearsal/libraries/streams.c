/* libcudart: streams that complete work at once, and events timed by the rehearsal's clock. */
#include <stdlib.h>

#include "runtime.h"

enum { HANDLE = 64 };

struct CUevent_st {
  long recorded;
};

static cudaError_t make_stream(cudaStream_t *stream) {
  *stream = calloc(1, HANDLE);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return make_stream(stream); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return make_stream(stream);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  return make_stream(stream);
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  *priority = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaSuccess; }

/* no stream is captured into a graph */
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(
    cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
    cudaGraph_t *graph, const cudaGraphNode_t **nodes,
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData **edges,
#endif
    size_t *count) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  *mode = cudaStreamCaptureModeGlobal;
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  function(data);
  return cudaSuccess;
}

static cudaError_t wait(const char *by) {
  rehearsal_record("wait by=%s", by);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) { return wait(__func__); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return wait(__func__); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return wait(__func__); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  *event = calloc(1, HANDLE);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  event->recorded = rehearsal_now();
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = 1e-6 * (end->recorded - start->recorded);
  return cudaSuccess;
}
