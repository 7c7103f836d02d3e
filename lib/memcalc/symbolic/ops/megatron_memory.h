// What one rank of a Megatron run shares among its layers: how it is split, and the buffers that are made once and
// kept. Operators of Megatron-core and TransformerEngine ask for it.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct Operator;

/// Where a linear layer sits in a tensor-parallel pair: its weight split by output (kColumn) or input features (kRow),
/// or whole on every rank (kDuplicated).
enum class ParallelMode : std::uint8_t { kDuplicated, kColumn, kRow };

class MegatronMemory {
 public:
  explicit MegatronMemory(Tape& tape) : tape(tape) {}
  MegatronMemory(const MegatronMemory&) = delete;
  MegatronMemory& operator=(const MegatronMemory&) = delete;

  /// transformer_engine/pytorch/module/base.py, get_dummy_wgrad: what a weight whose gradient went straight into
  /// main_grad hands to autograd; one for each shape, kept for good. Before it each function made its own (1.2,
  /// module/linear.py), which it returns here.
  Tensor use_dummy_weight_gradient(std::int64_t rows, std::int64_t columns, DType dtype);
  /// module/base.py, get_workspace: 32 MiB and 1 KiB from compute capability 9.0 on, else 4 MiB; made at the first use.
  void use_workspace();
  /// Of general_gemm, which Megatron-core's router calls beside its own layers, too.
  void use_engine_workspace();
  /// The same for each of the streams that a grouped GEMM runs on (cpp_extensions/gemm.py, get_multi_stream_…).
  void use_grouped_workspaces();
  /// megatron/core/utils.py, GlobalMemoryBuffer: each of its buffers ("mpu", "mpu_0", "mpu_1") grows to the largest
  /// request.
  void use_global_buffer(std::int64_t elements, DType dtype, std::size_t buffer = 0);
  /// A tensor of that size in the buffer "mpu".
  [[nodiscard]] Tensor in_global_buffer(const Shape& shape, DType dtype);

  Tape& tape;
  std::int64_t tensor_parallel = 1;
  bool sequence_parallel = false;
  bool fuses_weight_gradients = true;  // gradient_accumulation_fusion
  bool keeps_dummy_gradients = true;
  bool uses_transformer_engine = true;  // --transformer-impl; else Megatron's own layers, on PyTorch's workspaces

  /// defer_embedding_wgrad_compute: of so many micro-batches the head's weight gradient is computed after the last
  /// backward; 0: of none. Until then these are kept, one of each for a micro-batch.
  std::int64_t deferred_head_gradients = 0;
  std::vector<Tensor> head_inputs, head_gradients;
  Tensor rotary_angles;  // [s, 1, 1, rotary channels] float32, of the chunk that runs

 private:
  std::vector<std::pair<std::array<std::int64_t, 2>, Tensor>> dummy_gradients_;
  Tensor workspace_;
  std::vector<Tensor> grouped_workspaces_;
  std::array<Tensor, 3> global_buffers_;
};

}  // namespace memcalc
