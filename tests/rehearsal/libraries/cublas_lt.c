/* libcublasLt: products are traced with their types; one algorithm is returned for each. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "rehearsal.h"

enum { PRODUCT_NS = 20000 };

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
  *handle = calloc(1, 64);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = calloc(1, sizeof **made);
  (*made)->data[0] = compute;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *made = calloc(1, sizeof **made);
  (*made)->data[0] = type;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
  *made = calloc(1, sizeof **made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int asked, cublasLtMatmulHeuristicResult_t results[],
    int *found) {
  memset(results, 0, sizeof *results);
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t layout_a,
                              const void *b, cublasLtMatrixLayout_t layout_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t layout_c, void *d,
                              cublasLtMatrixLayout_t layout_d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t size, cudaStream_t stream) {
  rehearsal_record("product by=%s device=%d type=%d compute=%d math=%d", __func__,
                   rehearsal_device(), (int)layout_a->data[0], (int)product->data[0],
                   CUBLAS_DEFAULT_MATH);
  rehearsal_work(PRODUCT_NS);
  return CUBLAS_STATUS_SUCCESS;
}
