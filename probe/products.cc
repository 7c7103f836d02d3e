#include "products.h"

#include <stdexcept>
#include <string>
#include <tuple>

namespace memcalc::probe {

namespace {

void check_blas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(call) + ": cuBLASLt status " + std::to_string(static_cast<int>(status)));
  }
}

cudaDataType_t data_type(ProductType type) {
  switch (type) {
    case ProductType::kBFloat16: return CUDA_R_16BF;
    case ProductType::kFloat16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

auto key_of(const Product& p) {
  return std::make_tuple(p.type, p.batch, p.m, p.n, p.k, p.first_transposed, p.second_transposed);
}

}  // namespace

const char* name_of(ProductType type) {
  switch (type) {
    case ProductType::kBFloat16: return "bf16";
    case ProductType::kFloat16: return "fp16";
    case ProductType::kTf32: return "tf32";
    default: return "fp32";
  }
}

int bytes_of(ProductType type) { return type == ProductType::kBFloat16 || type == ProductType::kFloat16 ? 2 : 4; }

struct Products::Plan {
  Product product;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;

  Plan(cublasLtHandle_t handle, const Product& p, std::size_t workspace_bytes) : product(p) {
    const cublasComputeType_t compute =
        p.type == ProductType::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check_blas(cublasLtMatmulDescCreate(&operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    // cuBLASLt is column-major: C^T = B^T A^T, so B comes first.
    const cublasOperation_t first = p.second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p.first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first), "TRANSA");
    check_blas(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
               "TRANSB");
    const auto layout = [&](bool transposed, std::int64_t rows, std::int64_t columns) {
      cublasLtMatrixLayout_t created = nullptr;
      const auto height = static_cast<std::uint64_t>(transposed ? columns : rows);
      const auto width = static_cast<std::uint64_t>(transposed ? rows : columns);
      check_blas(
          cublasLtMatrixLayoutCreate(&created, data_type(p.type), height, width, static_cast<std::int64_t>(height)),
          "cublasLtMatrixLayoutCreate");
      if (p.batch > 1) {
        const auto count = static_cast<std::int32_t>(p.batch);
        const std::int64_t stride = rows * columns;
        check_blas(cublasLtMatrixLayoutSetAttribute(created, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
                   "BATCH_COUNT");
        check_blas(cublasLtMatrixLayoutSetAttribute(created, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                                    sizeof stride),
                   "STRIDED_BATCH_OFFSET");
      }
      return created;
    };
    a = layout(p.second_transposed, p.n, p.k);
    b = layout(p.first_transposed, p.k, p.m);
    c = layout(false, p.n, p.m);
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    check_blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &workspace_bytes, sizeof workspace_bytes),
               "MAX_WORKSPACE_BYTES");
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    found = cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, c, preference, 1, &result, &count) ==
                CUBLAS_STATUS_SUCCESS &&
            count > 0;
    algorithm = result.algo;
    cublasLtMatmulPreferenceDestroy(preference);
  }
  ~Plan() {
    for (cublasLtMatrixLayout_t each : {a, b, c}) cublasLtMatrixLayoutDestroy(each);
    cublasLtMatmulDescDestroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
};

Products::Products(std::size_t workspace_bytes) : workspace_(workspace_bytes) {
  check_blas(cublasLtCreate(&handle_), "cublasLtCreate");
}

Products::~Products() {
  delete last_;
  cublasLtDestroy(handle_);
}

bool Products::launch(const Product& product, const void* a, const void* b, void* c, cudaStream_t stream) {
  if (last_ == nullptr || key_of(last_->product) != key_of(product)) {
    delete last_;
    last_ = nullptr;
    last_ = new Plan(handle_, product, workspace_.size());
  }
  if (!last_->found) return false;
  const float one = 1, zero = 0;
  return cublasLtMatmul(handle_, last_->operation, &one, b, last_->a, a, last_->b, &zero, c, last_->c, c, last_->c,
                        &last_->algorithm, workspace_.get(), workspace_.size(), stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace memcalc::probe
