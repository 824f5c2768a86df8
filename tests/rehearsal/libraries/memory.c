/* libcudart: GPU memory is host memory, mapped at the first write; allocations fail at a limit. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

/* approximate memory of CUDA's own context on each GPU */
static const size_t CONTEXT_BYTES = 500UL << 20;
/* larger copies are skipped: kernels do not run, so that contents have no meaning */
static const size_t LARGEST_MOVE = 1 << 20, LARGEST_MOVE_FROM_HOST = 64 << 20;
enum { DEVICES = 64, PAGE = 4096, COPY_NS = 1000 };

struct range {
  char *start;
  size_t size;
  enum cudaMemoryType kind;
  int device;
  struct range *next;
};
static struct range *ranges;
static size_t used[DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* return a copy of the range with this address; cudaMemoryTypeUnregistered if there is none */
static struct range find(const void *address) {
  struct range found = {0};
  pthread_mutex_lock(&lock);
  for (struct range *one = ranges; one; one = one->next)
    if ((char *)address >= one->start && (char *)address < one->start + one->size) found = *one;
  pthread_mutex_unlock(&lock);
  return found;
}

cudaError_t take_memory(void **start, size_t size, enum cudaMemoryType kind) {
  int device = rehearsal_device();
  int is_device = kind == cudaMemoryTypeDevice;
  size_t bytes = size ? (size + PAGE - 1) / PAGE * PAGE : PAGE;
  pthread_mutex_lock(&lock);
  int is_full = is_device && used[device] + bytes + CONTEXT_BYTES > read_memory_bytes();
  char *mapped = MAP_FAILED;
  if (!is_full)
    mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped != MAP_FAILED) {
    struct range *range = malloc(sizeof *range);
    *range = (struct range){mapped, bytes, kind, device, ranges};
    ranges = range;
    if (is_device) used[device] += bytes;
  }
  pthread_mutex_unlock(&lock);
  if (is_device) rehearsal_record("memory device=%d is_full=%d", device, is_full);
  else rehearsal_record("pinned");
  if (mapped == MAP_FAILED)
    return fail(getenv("REHEARSAL_HIDES_FULL_MEMORY") ? cudaErrorUnknown : cudaErrorMemoryAllocation);
  *start = mapped;
  return cudaSuccess;
}

static cudaError_t give(void *start, const char *by) {
  if (!start) return cudaSuccess;
  rehearsal_record("release by=%s", by);
  pthread_mutex_lock(&lock);
  struct range **place = &ranges;
  while (*place && (*place)->start != start) place = &(*place)->next;
  struct range *range = *place;
  if (range) {
    *place = range->next;
    if (range->kind == cudaMemoryTypeDevice) used[range->device] -= range->size;
    munmap(range->start, range->size);
    free(range);
  }
  pthread_mutex_unlock(&lock);
  return range ? cudaSuccess : fail(cudaErrorInvalidValue);
}

cudaError_t cudaMalloc(void **start, size_t size) {
  return take_memory(start, size, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocAsync(void **start, size_t size, cudaStream_t stream) {
  return take_memory(start, size, cudaMemoryTypeDevice);
}
cudaError_t cudaHostAlloc(void **start, size_t size, unsigned flags) {
  return take_memory(start, size, cudaMemoryTypeHost);
}
cudaError_t cudaMallocHost(void **start, size_t size) {
  return take_memory(start, size, cudaMemoryTypeHost);
}
cudaError_t cudaFree(void *start) { return give(start, __func__); }
cudaError_t cudaFreeAsync(void *start, cudaStream_t stream) { return give(start, __func__); }
cudaError_t cudaFreeHost(void *start) { return give(start, __func__); }

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  *total = read_memory_bytes();
  *free = *total - CONTEXT_BYTES - used[rehearsal_device()];
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *told, const void *address) {
  struct range range = find(address);
  int is_known = range.kind != cudaMemoryTypeUnregistered;
  *told = (struct cudaPointerAttributes){
      .type = range.kind,
      .device = is_known ? range.device : -2,
      .devicePointer = is_known ? (void *)address : NULL,
      .hostPointer = range.kind == cudaMemoryTypeHost ? (void *)address : NULL};
  return cudaSuccess;
}

static const char *name_kind(struct range range) {
  if (range.kind == cudaMemoryTypeDevice) return "device";
  return range.kind == cudaMemoryTypeHost ? "pinned" : "pageable";
}

static cudaError_t copy(
    const char *by, void *to, const void *from, size_t size, cudaStream_t stream) {
  struct range target = find(to), source = find(from);
  int is_inside = target.kind == cudaMemoryTypeDevice && source.kind == cudaMemoryTypeDevice;
  rehearsal_record(
      "copy by=%s from=%s to=%s stream=%s", by, name_kind(source), name_kind(target),
      stream ? "own" : "default");
  rehearsal_work(COPY_NS);
  if (size <= (is_inside ? LARGEST_MOVE : LARGEST_MOVE_FROM_HOST)) memmove(to, from, size);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  return copy(__func__, to, from, size, NULL);
}
cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
  return copy(__func__, to, from, size, stream);
}
cudaError_t cudaMemcpyPeerAsync(
    void *to, int to_device, const void *from, int from_device, size_t size, cudaStream_t stream) {
  return copy(__func__, to, from, size, stream);
}
cudaError_t cudaMemcpy2DAsync(
    void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
    enum cudaMemcpyKind kind, cudaStream_t stream) {
  copy(__func__, to, from, 0, stream);
  for (size_t row = 0; row < height && width * height <= LARGEST_MOVE_FROM_HOST; row++)
    memmove((char *)to + row * to_pitch, (char *)from + row * from_pitch, width);
  return cudaSuccess;
}

static cudaError_t set(void *start, int value, size_t size) {
  rehearsal_work(COPY_NS);
  if (size <= LARGEST_MOVE) memset(start, value, size);
  return cudaSuccess;
}
cudaError_t cudaMemset(void *start, int value, size_t size) { return set(start, value, size); }
cudaError_t cudaMemsetAsync(void *start, int value, size_t size, cudaStream_t stream) {
  return set(start, value, size);
}

cudaError_t cudaGetSymbolAddress(void **start, const void *symbol) {
  return take_memory(start, PAGE, cudaMemoryTypeDevice);
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  *pool = calloc(1, 64);
  return cudaSuccess;
}
