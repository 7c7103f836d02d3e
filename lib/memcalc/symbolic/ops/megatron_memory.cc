// MIRRORS(transformer_engine, "pytorch/module/base.py", "2.11.0")
#include "memcalc/symbolic/ops/megatron_memory.h"

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kDummyGradient{"transformer_engine::get_dummy_wgrad"};
constexpr Operator kWorkspace{"transformer_engine::get_workspace"};
constexpr Operator kGlobalBuffer{"megatron::GlobalMemoryBuffer"};

/// module/base.py, get_cublas_workspace_size_bytes.
Bytes workspace_bytes(const DeviceSpec& device) {
  return architecture_of(device) >= CudaArchitecture::kHopper ? 32 * 1024 * 1024 + 1024 : 4 * 1024 * 1024;
}

constexpr int kGemmStreams = 4;  // nvte_get_num_compute_streams

}  // namespace

Tensor MegatronMemory::use_dummy_weight_gradient(std::int64_t rows, std::int64_t columns, DType dtype) {
  if (!keeps_dummy_gradients) return tape.empty({rows, columns}, dtype, kDummyGradient);
  const std::array<std::int64_t, 2> shape{rows, columns};
  for (const auto& [made, tensor] : dummy_gradients_) {
    if (made == shape) return {};
  }
  dummy_gradients_.emplace_back(shape, tape.empty({rows, columns}, dtype, kDummyGradient, Category::kWorkspaces));
  return {};
}

void MegatronMemory::use_workspace() {
  if (!uses_transformer_engine) return tape.memory.use_cublas(false);
  use_engine_workspace();
}

void MegatronMemory::use_engine_workspace() {
  if (workspace_.defined()) return;
  workspace_ = tape.empty({workspace_bytes(tape.device)}, DType::kUInt8, kWorkspace, Category::kWorkspaces);
}

void MegatronMemory::use_grouped_workspaces() {
  if (!grouped_workspaces_.empty()) return;
  for (int i = 0; i < kGemmStreams; ++i) {
    grouped_workspaces_.push_back(
        tape.empty({workspace_bytes(tape.device)}, DType::kUInt8, kWorkspace, Category::kWorkspaces));
  }
}

void MegatronMemory::use_global_buffer(std::int64_t elements, DType dtype, std::size_t buffer) {
  Tensor& kept = global_buffers_[buffer];
  if (kept.defined() && kept.elements() >= elements) return;
  kept = tape.empty({elements}, dtype, kGlobalBuffer, Category::kWorkspaces);
}

Tensor MegatronMemory::in_global_buffer(const Shape& shape, DType dtype) {
  use_global_buffer(shape.elements(), dtype);
  return tape.alias(global_buffers_[0], shape, contiguous_strides(shape), false);
}

}  // namespace memcalc
