/* libcudnn: graphs of operations, by the backend API; a graph is traced when it is executed.
 *
 * The heuristics return two engines, as on GPUs since Ampere: a fast one with the note that it uses
 * tensor cores (TF32 for fp32 operands), and a slow one without. */
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#include "rehearsal.h"

enum { MOST = 32, ENGINES = 2, FAST_NS = 20000, SLOW_NS = 200000, HANDLE = 512 };

struct attribute {
  cudnnBackendAttributeName_t name;
  int64_t count;
  void *bytes;
};

struct descriptor {
  cudnnBackendDescriptorType_t type;
  int count;
  struct attribute attributes[MOST];
};

#define MAKE(name, type)                 \
  cudnnStatus_t name(type *made) {       \
    *made = calloc(1, HANDLE);           \
    return CUDNN_STATUS_SUCCESS;         \
  }
MAKE(cudnnCreate, cudnnHandle_t)
MAKE(cudnnCreateTensorDescriptor, cudnnTensorDescriptor_t)
MAKE(cudnnCreateFilterDescriptor, cudnnFilterDescriptor_t)
MAKE(cudnnCreateConvolutionDescriptor, cudnnConvolutionDescriptor_t)
MAKE(cudnnCreateActivationDescriptor, cudnnActivationDescriptor_t)
MAKE(cudnnCreatePoolingDescriptor, cudnnPoolingDescriptor_t)
MAKE(cudnnCreateDropoutDescriptor, cudnnDropoutDescriptor_t)

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  *(cudaStream_t *)handle = stream;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
  *stream = *(cudaStream_t *)handle;
  return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return CUDART_VERSION; }
const char *cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_OF_REHEARSAL";
}
void cudnnGetLastErrorString(char *text, size_t size) {
  if (size) *text = 0;
}
cudnnStatus_t cudnnGetProperty(libraryPropertyType property, int *value) {
  *value = property == MAJOR_VERSION ? CUDNN_MAJOR
           : property == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
  return CUDNN_STATUS_SUCCESS;
}

/* ---- batch normalization, which needs no workspace here */
cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t z,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t *size) {
  *size = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
    const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t *size) {
  *size = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t operations,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t x, size_t *size) {
  *size = 0;
  return CUDNN_STATUS_SUCCESS;
}

/* ---- descriptors, which are never freed, as others point at them */
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *made) {
  struct descriptor *one = calloc(1, sizeof *one);
  one->type = type;
  *made = one;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t made) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t made) { return CUDNN_STATUS_SUCCESS; }

static size_t measure(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_FRACTION: return 8;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR: return 1;
    /* a float, or an enumeration */
    default: return 4;
  }
}

static void put(struct descriptor *one, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
  if (one->count == MOST) abort();
  size_t bytes = count * measure(type);
  struct attribute *added = &one->attributes[one->count++];
  *added = (struct attribute){name, count, malloc(bytes + 1)};
  memcpy(added->bytes, values, bytes);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t made,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values) {
  put(made, name, type, count, values);
  return CUDNN_STATUS_SUCCESS;
}

static const struct attribute *find(const struct descriptor *one,
                                    cudnnBackendAttributeName_t name) {
  for (int i = 0; one && i < one->count; i++)
    if (one->attributes[i].name == name) return &one->attributes[i];
  return NULL;
}

static struct descriptor *follow(const struct descriptor *one, cudnnBackendAttributeName_t name) {
  const struct attribute *found = find(one, name);
  return found ? *(struct descriptor **)found->bytes : NULL;
}

static int64_t read_number(const struct descriptor *one, cudnnBackendAttributeName_t name) {
  const struct attribute *found = find(one, name);
  return found ? *(int32_t *)found->bytes : -1;
}

/* Set engine `index` of a graph in a configuration that the caller has created. */
static void configure(struct descriptor *configuration, struct descriptor *graph, int64_t index) {
  cudnnBackendDescriptor_t engine;
  cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
  put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &index);
  configuration->count = 0;
  put(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
}

static int64_t read_index(const struct descriptor *engine) {
  const struct attribute *index = find(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  return index ? *(int64_t *)index->bytes : -1;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const made,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t asked,
                                       int64_t *count, void *values) {
  struct descriptor *one = made, **given = values;
  const struct attribute *held = find(one, name);
  int64_t found = 0;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    struct descriptor *graph = follow(one, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    found = ENGINES;
    for (int64_t i = 0; given && i < asked && i < ENGINES; i++) configure(given[i], graph, i);
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    found = read_index(one) == 0;
    if (values && asked && found)
      *(cudnnBackendNumericalNote_t *)values = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
  } else if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    found = held ? held->count : 0;
    for (int64_t i = 0; given && i < asked && i < found; i++)
      *given[i] = *((struct descriptor **)held->bytes)[i];
  } else if (held) {
    found = held->count;
    if (values) memcpy(values, held->bytes, (asked < found ? asked : found) * measure(type));
  } else if (type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_INT32) {
    /* the workspace size of an engine: 0 */
    found = 1;
    if (values && asked) memset(values, 0, measure(type));
  }
  if (count) *count = found;
  return CUDNN_STATUS_SUCCESS;
}

static cudnnBackendAttributeName_t name_input(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      return CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X;
    default: return 0;
  }
}

static cudnnBackendAttributeName_t name_convolution(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC;
    default: return CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC;
  }
}

static cudnnBackendAttributeName_t name_query(cudnnBackendDescriptorType_t type) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return CUDNN_ATTR_OPERATION_MATMUL_ADESC;
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR: return CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC;
    default: return 0;
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variants) {
  struct descriptor *configuration = follow(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  struct descriptor *engine = follow(configuration, CUDNN_ATTR_ENGINECFG_ENGINE);
  struct descriptor *graph = follow(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
  const struct attribute *operations = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  int has_tensor_cores = read_index(engine) == 0;
  if (!operations) {
    rehearsal_refuse("a plan of cuDNN without operations");
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  int products = 0;
  for (int64_t i = 0; i < operations->count; i++) {
    struct descriptor *one = ((struct descriptor **)operations->bytes)[i];
    cudnnBackendAttributeName_t input = name_input(one->type);
    /* one operation, or with a mask its products and the operations between them */
    cudnnBackendAttributeName_t query = name_query(one->type);
    if (query && ++products == 1)
      rehearsal_record("attention device=%d type=%d", rehearsal_device(),
                       (int)read_number(follow(one, query), CUDNN_ATTR_TENSOR_DATA_TYPE));
    if (!input) continue;
    struct descriptor *convolution = follow(one, name_convolution(one->type));
    rehearsal_record("convolution device=%d type=%d compute=%d has_tensor_cores=%d",
                     rehearsal_device(), (int)read_number(follow(one, input), CUDNN_ATTR_TENSOR_DATA_TYPE),
                     (int)read_number(convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE),
                     has_tensor_cores);
  }
  rehearsal_work(has_tensor_cores ? FAST_NS : SLOW_NS);
  return CUDNN_STATUS_SUCCESS;
}
