// What cuBLAS takes for good at a thread's first product: PyTorch's default by chip and version.
// MIRRORS(torch, "aten/src/ATen/cuda/CublasHandlePool.cpp", "2.11.0")
// Covered by tests/unit/cublas_workspaces_test.cc.
#pragma once

#include "memcalc/base/bytes.h"
#include "memcalc/spec/behaviors.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

struct CublasWorkspaces {
  Bytes cublas = 0;    // for each thread, and stream, that issues products
  Bytes cublaslt = 0;  // for each thread that issues products with a fused bias
};

/// What the card's own file says, else the defaults. None on a card that runs neither CUDA nor ROCm.
[[nodiscard]] CublasWorkspaces cublas_workspaces(const DeviceSpec& device, const Behaviors& behaviors);

}  // namespace memcalc
