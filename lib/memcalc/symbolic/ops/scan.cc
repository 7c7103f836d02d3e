// MIRRORS(torch, "FunctionsManual.cpp", "2.11.0")
// MIRRORS(torch, "cuda/ScanKernels.cpp", "2.11.0")
// MIRRORS(torch, "cuda/ScanUtils.cuh", "2.11.0")
#include "memcalc/symbolic/ops/scan.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

struct CumulativeSumPayload {
  int dim = 0;
  DType input = DType::kFloat32;
};

/// cuda/ScanKernels.cpp: a row-major result, and for the time of the scan a row-major copy of what is not. What is one
/// row is left to CUB (cuda/ScanUtils.cuh, scan_dim).
Tensor scanned(const Tensor& x, int dim, DType dtype) {
  Tape& tape = x.tape();
  Tensor result = tape.empty(x.shape(), dtype, aten::kCumsum);
  {
    Tensor converted, rows;
    bool row_major = x.is_contiguous();
    if (dtype != x.dtype()) {
      converted = tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), dtype, aten::kToCopy);
      row_major = converted.is_contiguous();
    }
    if (!row_major) rows = tape.empty(x.shape(), dtype, aten::kCumsum);
    const bool is_one_row = x.rank() > 0 && x.elements() > 0 && x.elements() == x.size(dim);
    if (is_one_row) tape.memory.scratch(scan_bytes(x.elements(), size_of(dtype)), aten::kCumsum);
  }
  tape.kernels.add(aten::kCumsum, OperatorClass::kMovement, x.dtype(), 0,
                   static_cast<double>(x.bytes() + result.bytes()));
  const std::int64_t rows = x.elements() / std::max<std::int64_t>(x.rank() > 0 ? x.size(dim) : 1, 1);
  if (rows > 1 && dim == x.rank() - 1) tape.kernels.describe(work::Rows{.count = rows, .width = x.size(dim)});
  return result;
}

/// FunctionsManual.cpp, cumsum_backward: the gradient from its other end: flip, cumsum, flip.
void cumsum_backward(BackwardCall& call) {
  const auto& [dim, dtype] = call.payload<CumulativeSumPayload>();
  const Tensor gradient = to_dtype(call.gradient(), dtype);  // derivatives.yaml: grad.to(self.scalar_type())
  if (gradient.elements() <= 1 || gradient.size(dim) == 1) return call.set(0, gradient);
  Tensor from_end = flip(gradient);
  Tensor summed = scanned(from_end, dim, gradient.dtype());
  Tensor result = flip(summed);
  drop(summed, from_end);
  call.set(0, std::move(result));
}

}  // namespace

Tensor cumulative_sum(const Tensor& x, int dim, DType dtype) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kCumsum, cumsum_backward, inputs, 1);
  if (node != nullptr) node->payload.set(CumulativeSumPayload{.dim = dim, .input = x.dtype()});
  Tensor result = scanned(x, dim, dtype);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
