// Unsloth's functions (unsloth 2026.10.9): products with their adapters in one autograd.Function, whose backward writes
// the gradient of the input over the input; norms and rotary positions in Triton; the loss over chunks of the logits.
// Covered by tests/unit/unsloth_test.cc.
#pragma once

#include <array>
#include <span>

#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// A linear layer without bias as Unsloth's functions take it.
struct UnslothProduct {
  const QuantizedWeight* packed = nullptr;  // NF4; null: the weight is dense
  Tensor lora_a, lora_b;                    // [rank, in], [out, rank]

  [[nodiscard]] std::int64_t in() const { return lora_a.size(1); }
  [[nodiscard]] std::int64_t out() const { return lora_b.size(0); }
  [[nodiscard]] std::int64_t rank() const { return lora_a.size(0); }
};

/// Fast_RMS_Layernorm: keeps x and one float32 number per row; the gradient takes its own place.
[[nodiscard]] Tensor unsloth_rms_norm(const Tensor& x, const Tensor& weight);
/// Fast_RoPE_Embedding_QK_Positions of query and key [batch, heads, sequence, width], in place; backward makes anew.
void unsloth_rotate(Tensor& query, Tensor& key);
/// Fast_QK_Norm_RoPE of query and key [batch, sequence, heads, width]: normalised head by head, and rotated.
void unsloth_norm_and_rotate(Tensor& query, Tensor& key);
/// LoRA_W: x [batch, sequence, in] times the weight and its adapter.
[[nodiscard]] Tensor unsloth_linear(const Tensor& x, const UnslothProduct& product);
/// LoRA_QKV: three of them. Backward writes the gradient of x over x.
[[nodiscard]] std::array<Tensor, 3> unsloth_qkv(const Tensor& x, const std::array<UnslothProduct, 3>& products);
/// LoRA_MLP: down(silu(gate(x)) * up(x)), likewise; `products`: gate, up, down. The gradients of gate and up are
/// written over these.
[[nodiscard]] Tensor unsloth_mlp(const Tensor& x, const std::array<UnslothProduct, 3>& products);
/// torch.nn.functional.scaled_dot_product_attention, causal; where that is cuDNN's, its sequences are padded to the
/// next multiple of 128 tokens (utils/attention_dispatch.py, _cudnn_length_bucketed_sdpa). [batch, heads, sequence,
/// width]
[[nodiscard]] Tensor unsloth_attention(const Tensor& query, const Tensor& key, const Tensor& value);
/// unsloth_zoo fused_losses/fused_linear.py, fused_linear_cross_entropy of a frozen head: the logits of `targets` rows
/// of hidden [batch, sequence, width], a chunk at a time; the gradient is computed in forward.
[[nodiscard]] Tensor unsloth_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& labels,
                                                  std::int64_t targets);
/// LlamaRotaryEmbedding._set_cos_sin_cache: made once, they stay.
void unsloth_make_positions(Tape& tape, std::int64_t rows, std::int64_t width, DType dtype);

/// Rows of logits that the loss holds at once, of `targets`.
[[nodiscard]] std::int64_t unsloth_chunk_rows(std::int64_t targets, std::int64_t hidden_size, std::int64_t vocabulary);

}  // namespace memcalc
