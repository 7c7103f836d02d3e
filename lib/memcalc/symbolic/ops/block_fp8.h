// Weights in float8_e4m3fn with a float32 scale for each block of 128 x 128, as DeepSeek-V3's and Qwen3's FP8
// checkpoints hold them: transformers 5.17 integrations/finegrained_fp8.py with the Triton kernels
// kernels-community/finegrained-fp8 (August 2026), which quantise activations inside. DeepGEMM, which transformers
// prefers on Hopper where nvcc is installed, is not modelled.
// Covered by tests/unit/native_formats_test.cc; rows: tests/measured/rows_native_formats_h200.jsonl.
// MIRRORS(transformers, "core_model_loading.py", "5.17.0")
// MIRRORS(transformers, "integrations/finegrained_fp8.py", "5.17.0")
#pragma once

#include "memcalc/symbolic/ops/expert_matrices.h"
#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Rows and columns of a block: quantization_config.weight_block_size.
inline constexpr std::int64_t kFp8Block = 128;

/// A layer's weight and its weight_scale_inv, as the checkpoint holds them: returns the weight.
[[nodiscard]] Tensor load_block_fp8(Tape& tape, QuantizedWeight& weight);
/// FP8Linear.forward.
[[nodiscard]] Tensor block_fp8_linear(const Tensor& x, const QuantizedWeight& weight, const Tensor& bias);
[[nodiscard]] PackedBytes block_fp8_bytes(const QuantizedWeight& weight);

/// The experts' matrices: a checkpoint has each by itself, and loading stacks them (core_model_loading.py,
/// MergeModulelist and Concatenate).
[[nodiscard]] Tensor load_block_fp8(Tape& tape, ExpertMatrices& matrices);
/// matmul_grouped: rows [n, in], sorted by expert.
[[nodiscard]] Tensor block_fp8_grouped_mm(const Tensor& rows, const ExpertMatrices& matrices,
                                          const Tensor& tokens_per_expert);
/// matmul_batched: rows [n, in], each by the matrix of its own expert.
[[nodiscard]] Tensor block_fp8_batched_mm(const Tensor& rows, const ExpertMatrices& matrices);
[[nodiscard]] PackedBytes block_fp8_bytes(const ExpertMatrices& matrices);

}  // namespace memcalc
