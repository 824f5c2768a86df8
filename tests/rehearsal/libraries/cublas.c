/* libcublas: products are traced with their types and the math mode of their handle. */
#include <cublas_v2.h>
#include <stdlib.h>

#include "rehearsal.h"

enum { PRODUCT_NS = 20000 };

struct cublasContext {
  cublasMath_t math;
};

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  *handle = calloc(1, sizeof **handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t multiply(const char *by, cublasHandle_t handle, cudaDataType type,
                               cublasComputeType_t compute) {
  rehearsal_record("product by=%s device=%d type=%d compute=%d math=%d", by, rehearsal_device(),
                   type, compute, handle->math);
  rehearsal_work(PRODUCT_NS);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                              int m, int n, int k, const float *alpha, const float *a, int lda,
                              const float *b, int ldb, const float *beta, float *c, int ldc) {
  return multiply(__func__, handle, CUDA_R_32F, CUBLAS_COMPUTE_32F);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta,
                                         cublasOperation_t tb, int m, int n, int k,
                                         const float *alpha, const float *a, int lda,
                                         long long stride_a, const float *b, int ldb,
                                         long long stride_b, const float *beta, float *c, int ldc,
                                         long long stride_c, int batches) {
  return multiply(__func__, handle, CUDA_R_32F, CUBLAS_COMPUTE_32F);
}

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                             int m, int n, int k, const float *alpha, const void *a,
                             cudaDataType type_a, int lda, const void *b, cudaDataType type_b,
                             int ldb, const float *beta, void *c, cudaDataType type_c, int ldc) {
  return multiply(__func__, handle, type_a, CUBLAS_COMPUTE_32F);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                            int m, int n, int k, const void *alpha, const void *a,
                            cudaDataType type_a, int lda, const void *b, cudaDataType type_b,
                            int ldb, const void *beta, void *c, cudaDataType type_c, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return multiply(__func__, handle, type_a, compute);
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
    const void *alpha, const void *a, cudaDataType type_a, int lda, long long stride_a,
    const void *b, cudaDataType type_b, int ldb, long long stride_b, const void *beta, void *c,
    cudaDataType type_c, int ldc, long long stride_c, int batches, cublasComputeType_t compute,
    cublasGemmAlgo_t algorithm) {
  return multiply(__func__, handle, type_a, compute);
}

const char *cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_ALLOC_FAILED ? "CUBLAS_STATUS_ALLOC_FAILED" : "of the rehearsal";
}
