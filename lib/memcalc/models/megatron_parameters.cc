// How many parameters Megatron-core's models have: what the modules of megatron_{gpt,bert,t5}.cc make, in closed form,
// without splitting anything.
#include "memcalc/base/bytes.h"
#include "memcalc/models/megatron_config.h"

namespace memcalc {

namespace {

std::int64_t norm(const MegatronConfig& c, std::int64_t width) { return (c.rms_norm ? 1 : 2) * width; }

std::int64_t linear(std::int64_t in, std::int64_t out, bool bias) {
  return checked_add(checked_multiply(in, out), bias ? out : 0);
}

std::int64_t mlp(const MegatronConfig& c, std::int64_t ffn) {
  return linear(c.hidden_size, (c.swiglu ? 2 : 1) * ffn, c.bias_linear) + linear(ffn, c.hidden_size, c.bias_linear);
}

std::int64_t attention(const MegatronConfig& c) {
  if (c.latent) {
    const LatentAttentionSpec& l = *c.latent;
    const std::int64_t q_out = c.num_attention_heads * (l.qk_nope_head_dim + l.qk_rope_head_dim);
    std::int64_t sum = linear(c.num_attention_heads * l.v_head_dim, c.hidden_size, c.bias_linear) +
                       linear(c.hidden_size, l.kv_lora_rank + l.qk_rope_head_dim, false) +
                       linear(l.kv_lora_rank, c.num_attention_heads * (l.qk_nope_head_dim + l.v_head_dim), false) +
                       norm(c, l.kv_lora_rank) + norm(c, c.hidden_size);
    if (!l.q_lora_rank) return sum + linear(c.hidden_size, q_out, false);
    return sum + linear(c.hidden_size, *l.q_lora_rank, false) + linear(*l.q_lora_rank, q_out, false) +
           norm(c, *l.q_lora_rank);
  }
  const std::int64_t heads = c.num_attention_heads + 2 * c.num_query_groups;
  return linear(c.num_attention_heads * c.kv_channels, c.hidden_size, c.bias_linear) +
         linear(c.hidden_size, heads * c.kv_channels, c.bias_linear || c.qkv_bias) + norm(c, c.hidden_size) +
         (c.qk_layernorm ? 2 * norm(c, c.kv_channels) : 0);
}

/// Without the layer's norm in front of it, which every layer has one of.
std::int64_t mamba_mixer(const MegatronConfig& c) {
  const Mamba2MixerSpec& m = *c.mamba;
  return linear(c.hidden_size, m.intermediate_size() + m.conv_dim() + m.num_heads, false) +
         m.conv_dim() * (m.conv_kernel + 1) + 3 * m.num_heads + m.intermediate_size() +
         linear(m.intermediate_size(), c.hidden_size, false);
}

/// CrossAttention and the norm in front of it.
std::int64_t cross_attention(const MegatronConfig& c) {
  const std::int64_t width = c.num_attention_heads * c.kv_channels;
  return linear(c.hidden_size, width, c.bias_linear) + linear(c.hidden_size, 2 * width, c.bias_linear) +
         linear(width, c.hidden_size, c.bias_linear) + norm(c, c.hidden_size);
}

/// BertLMHead, the pooler and the binary head.
std::int64_t bert_heads(const MegatronConfig& c) {
  return 2 * linear(c.hidden_size, c.hidden_size, true) + 2 * c.hidden_size + linear(c.hidden_size, 2, true);
}

/// Of one expert.
std::int64_t expert(const MegatronConfig& c) { return mlp(c, c.moe->experts.intermediate_size); }

}  // namespace

MegatronCount count_parameters(const MegatronConfig& c) {
  MegatronCount count;
  const std::int64_t table = checked_multiply(c.padded_vocab_size, c.hidden_size);
  count.total = checked_add(table, norm(c, c.hidden_size));
  if (!c.shares_embeddings) count.total = checked_add(count.total, table);
  if (c.learns_positions()) count.total = checked_add(count.total, c.max_position_embeddings * c.hidden_size);
  count.total += c.token_types * c.hidden_size;
  if (c.head_bias) count.total += c.padded_vocab_size;
  if (c.token_types > 0) count.total = checked_add(count.total, bert_heads(c));
  if (c.decoder_layers > 0) {
    const std::int64_t layer = attention(c) + cross_attention(c) + norm(c, c.hidden_size) + mlp(c, c.ffn_hidden_size);
    count.total = checked_add(count.total, checked_multiply(c.decoder_layers, layer) + norm(c, c.hidden_size));
  }
  for (std::int64_t i = 0; i < c.num_layers; ++i) {
    const MegatronLayerKind block = c.block(i);
    if (block == MegatronLayerKind::kMamba || block == MegatronLayerKind::kAttention) {
      const bool mixes = block == MegatronLayerKind::kMamba;
      count.total = checked_add(count.total, mixes ? mamba_mixer(c) + norm(c, c.hidden_size) : attention(c));
      continue;
    }
    std::int64_t layer = (block == MegatronLayerKind::kMlp ? 0 : attention(c)) + norm(c, c.hidden_size);
    if (c.is_dense(i)) {
      layer += mlp(c, c.ffn_hidden_size);
    } else {
      const ExpertsSpec& experts = c.moe->experts;
      layer += checked_multiply(experts.count, c.hidden_size + expert(c));
      if (c.moe->shared_intermediate_size > 0) layer += mlp(c, c.moe->shared_intermediate_size);
      count.inactive = checked_add(count.inactive, checked_multiply(experts.count - experts.per_token, expert(c)));
    }
    count.total = checked_add(count.total, layer);
  }
  return count;
}

}  // namespace memcalc
