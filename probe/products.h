// Products of matrices through cuBLASLt, as PyTorch's Linear layers use it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "device_memory.h"

namespace memcalc::probe {

enum class ProductType : std::uint8_t { kBFloat16, kFloat16, kTf32, kFloat32 };

[[nodiscard]] const char* name_of(ProductType type);
[[nodiscard]] int bytes_of(ProductType type);

/// C[batch, m, n] = A[batch, m, k] B[batch, k, n], row-major; an operand marked transposed is stored column-major.
struct Product {
  ProductType type = ProductType::kBFloat16;
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  bool first_transposed = false, second_transposed = false;
};

/// The handle and its workspace, of the size that PyTorch gives it.
class Products {
 public:
  explicit Products(std::size_t workspace_bytes);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  /// False where cuBLASLt has no algorithm for it.
  bool launch(const Product& product, const void* a, const void* b, void* c, cudaStream_t stream);

 private:
  struct Plan;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  Plan* last_ = nullptr;  // of the product launched last: timing loops repeat one
};

}  // namespace memcalc::probe
