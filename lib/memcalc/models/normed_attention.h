// Attention whose query and key are normalised over all heads at once (OLMoE, MiniMax-M2), or head by head once they
// are transposed (Apertus, Hunyuan 3) or also rotated (Hunyuan V1).
#pragma once

#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

/// OlmoeAttention.forward, which MiniMaxM2Attention's repeats, but for a part of each head that is not rotated.
struct WholeNormedAttention : HeadProjections {
  RmsNorm q_norm, k_norm;
  bool rotates_part = false;

  WholeNormedAttention(ModuleBuilder& b, const RotaryDecoderSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias),
        q_norm(b, "q_norm", checked_multiply(spec.num_attention_heads, spec.head_dim)),
        k_norm(b, "k_norm", checked_multiply(spec.num_key_value_heads, spec.head_dim)) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = q_norm(q_proj(hidden_states));
    Tensor key_states = k_norm(k_proj(hidden_states));
    Tensor value_states = v_proj(hidden_states);
    for (Tensor* states : {&query_states, &key_states, &value_states}) {
      *states = transpose(view(*states, {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1, 2);
    }
    if (rotates_part) {
      apply_partial_rotary(query_states, key_states, positions);
    } else {
      rotate_heads(query_states, key_states, positions);
    }
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

/// ApertusAttention.forward, which HYV3Attention's repeats.
struct TransposedNormedAttention : HeadProjections {
  RmsNorm q_norm, k_norm;

  TransposedNormedAttention(ModuleBuilder& b, const RotaryDecoderSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias),
        q_norm(b, "q_norm", spec.head_dim),
        k_norm(b, "k_norm", spec.head_dim) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    query_states = q_norm(query_states);
    key_states = k_norm(key_states);
    rotate_heads(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

/// HunYuanDenseV1Attention.forward, which HunYuanMoEV1Attention's repeats: heads are rotated before they are normalized.
struct RotatedNormedAttention : HeadProjections {
  RmsNorm query_layernorm, key_layernorm;

  RotatedNormedAttention(ModuleBuilder& b, const RotaryDecoderSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias),
        query_layernorm(b, "query_layernorm", spec.head_dim),
        key_layernorm(b, "key_layernorm", spec.head_dim) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    rotate_heads(query_states, key_states, positions);
    query_states = query_layernorm(query_states);
    key_states = key_layernorm(key_states);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

}  // namespace memcalc
