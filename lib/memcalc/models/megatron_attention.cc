// megatron/core/transformer/attention.py, multi_latent_attention.py (core_r0.14.0).
// MIRRORS(megatron, "core/transformer/attention.py", "0.14.0")
// MIRRORS(megatron, "core/transformer/multi_latent_attention.py", "0.14.0")
#include "memcalc/models/megatron_gpt.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/tensor_parallel.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

TeContextParallel context_type(const Parallel& parallel) {
  if (parallel.context == 1) return TeContextParallel::kNone;
  switch (parallel.context_type) {
    case ContextParallel::kRing: return TeContextParallel::kRing;
    case ContextParallel::kAllGather: return TeContextParallel::kAllGather;
    case ContextParallel::kUlysses: break;
  }
  return TeContextParallel::kAllToAll;
}

/// SelfAttention: query, key and value of a group of heads side by side in one projection.
class SelfAttention : public MegatronAttentionLayer {
 public:
  SelfAttention(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
      : config_(config),
        memory_(memory),
        linear_proj_(b, "linear_proj", memory, ParallelMode::kRow, config.num_attention_heads * config.kv_channels,
                     config.hidden_size, config.bias_linear, false, config.rms_norm),
        linear_qkv_(b, "linear_qkv", memory, ParallelMode::kColumn, config.hidden_size,
                    (config.num_attention_heads + 2 * config.num_query_groups) * config.kv_channels,
                    config.bias_linear || config.qkv_bias, true, config.rms_norm) {
    if (!config.qk_layernorm) return;
    q_layernorm_ = MegatronNorm(b, "q_layernorm", memory, config.kv_channels, config.rms_norm);
    k_layernorm_ = MegatronNorm(b, "k_layernorm", memory, config.kv_channels, config.rms_norm);
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const MegatronAttended& attended) const override {
    Tensor mixed = linear_qkv_(hidden_states);
    auto [query, key, value] =
        split_query_key_value(mixed, config_.num_query_groups / config_.parallel.tensor, config_.kv_channels);
    mixed.reset();
    if (q_layernorm_.memory != nullptr) {
      query = q_layernorm_(query);
      key = k_layernorm_(key);
    }
    if (config_.rotary) {
      query = rotate(query);
      key = rotate(key);
    }
    const Tensor context = megatron_core_attention(config_, memory_, query, key, value, attended);
    return linear_proj_(context);
  }

 private:
  /// rope_utils.py, apply_rotary_pos_emb: TransformerEngine's kernel, or _apply_rotary_pos_emb_bshd.
  [[nodiscard]] Tensor rotate(const Tensor& x) const {
    if (config_.options.fuses_rope) return te_fused_rope(x);
    const std::int64_t width = config_.rotary_channels();
    Tensor t = slice(x, 3, 0, width);
    const Tensor rest = slice(x, 3, width, x.size(3) - width);
    const Tensor cosines = of_angles(cosine, x.dtype()), sines = of_angles(sine, x.dtype());
    const auto rotate_half = [](const Tensor& whole) {
      const std::vector<Tensor> halves = split(whole, 3, 2);
      return cat(negate(halves[1]), halves[0], 3);
    };
    t = t * cosines + rotate_half(t) * sines;
    return cat(t, rest, 3);
  }
  /// Of every position's angles, times mscale, in the type of the heads.
  template <typename Function>
  [[nodiscard]] Tensor of_angles(Function function, DType dtype) const {
    const NoGrad no_grad(memory_.tape.modes);
    return to_dtype(multiply_scalar(function(memory_.rotary_angles)), dtype);
  }

  const MegatronConfig& config_;
  MegatronMemory& memory_;
  MegatronLinear linear_proj_, linear_qkv_;
  MegatronNorm q_layernorm_, k_layernorm_;
};

/// CrossAttention: queries of the decoder, key and value of the encoder's output side by side.
class CrossAttention : public MegatronAttentionLayer {
 public:
  CrossAttention(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
      : config_(config),
        memory_(memory),
        width_(config.num_attention_heads * config.kv_channels),
        linear_proj_(b, "linear_proj", memory, ParallelMode::kRow, width_, config.hidden_size, config.bias_linear,
                     false, config.rms_norm),
        linear_q_(b, "linear_q", memory, ParallelMode::kColumn, config.hidden_size, width_, config.bias_linear, false,
                  config.rms_norm),
        linear_kv_(b, "linear_kv", memory, ParallelMode::kColumn, config.hidden_size, 2 * width_, config.bias_linear,
                   false, config.rms_norm) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const MegatronAttended& attended) const override {
    const std::int64_t heads = config_.num_attention_heads / config_.parallel.tensor;
    Tensor mixed = linear_kv_(attended.context);
    mixed = view(mixed, {mixed.size(0), mixed.size(1), heads, 2 * config_.kv_channels});
    std::vector<Tensor> key_value = split(mixed, 3, 2);
    mixed.reset();
    Tensor query = linear_q_(hidden_states);
    query = view(query, {query.size(0), query.size(1), heads, config_.kv_channels});
    const Tensor context = megatron_core_attention(config_, memory_, query, key_value[0], key_value[1], attended);
    return linear_proj_(context);
  }

 private:
  const MegatronConfig& config_;
  MegatronMemory& memory_;
  std::int64_t width_;
  MegatronLinear linear_proj_, linear_q_, linear_kv_;
};

/// MLASelfAttention: projections down and up again; the norm in front of the second up-projection is fused with it.
class LatentAttention : public MegatronAttentionLayer {
 public:
  LatentAttention(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory)
      : config_(config),
        memory_(memory),
        latent_(*config.latent),
        heads_(config.num_attention_heads / config.parallel.tensor),
        linear_proj_(b, "linear_proj", memory, ParallelMode::kRow, config.num_attention_heads * latent_.v_head_dim,
                     config.hidden_size, config.bias_linear, false, config.rms_norm),
        linear_kv_down_proj_(b, "linear_kv_down_proj", memory, ParallelMode::kDuplicated, config.hidden_size,
                             latent_.kv_lora_rank + latent_.qk_rope_head_dim, false, false, config.rms_norm),
        linear_kv_up_proj_(b, "linear_kv_up_proj", memory, ParallelMode::kColumn, latent_.kv_lora_rank,
                           config.num_attention_heads * (latent_.qk_nope_head_dim + latent_.v_head_dim), false, true,
                           config.rms_norm) {
    const std::int64_t q_out = config.num_attention_heads * (latent_.qk_nope_head_dim + latent_.qk_rope_head_dim);
    const bool compresses = latent_.q_lora_rank.has_value();
    if (compresses) {
      q_down_ =
          std::make_unique<MegatronLinear>(b, "linear_q_down_proj", memory, ParallelMode::kDuplicated,
                                           config.hidden_size, *latent_.q_lora_rank, false, false, config.rms_norm);
    }
    q_up_ = std::make_unique<MegatronLinear>(
        b, compresses ? "linear_q_up_proj" : "linear_q_proj", memory, ParallelMode::kColumn,
        compresses ? *latent_.q_lora_rank : config.hidden_size, q_out, false, compresses, config.rms_norm);
  }

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const MegatronAttended& attended) const override {
    Tensor q_compressed = q_down_ ? (*q_down_)(hidden_states) : hidden_states;
    Tensor kv_combined = linear_kv_down_proj_(hidden_states);
    auto [kv_compressed, k_pos_emb] = split_last(kv_combined, latent_.kv_lora_rank);
    kv_combined.reset();
    Tensor q = (*q_up_)(q_compressed);
    Tensor kv = linear_kv_up_proj_(kv_compressed);
    const std::int64_t sequence = q.size(0), batch = q.size(1);
    const std::int64_t qk = latent_.qk_nope_head_dim + latent_.qk_rope_head_dim;
    // fused_mla_yarn_rope_apply.py: in place for the query; key and value are written whole.
    Tensor query = view(q, {sequence, batch, heads_, qk});
    q.reset();
    auto [key, value] =
        mla_key_value(view(kv, {sequence, batch, heads_, latent_.qk_nope_head_dim + latent_.v_head_dim}), k_pos_emb, qk,
                      latent_.v_head_dim);
    kv.reset();
    const Tensor context = megatron_core_attention(config_, memory_, query, key, value, attended);
    return linear_proj_(context);
  }

 private:
  const MegatronConfig& config_;
  MegatronMemory& memory_;
  const LatentAttentionSpec& latent_;
  std::int64_t heads_;
  MegatronLinear linear_proj_, linear_kv_down_proj_, linear_kv_up_proj_;
  std::unique_ptr<MegatronLinear> q_down_, q_up_;
};

/// backends.py, FlashAttention: by batch, so that of several sequences each is copied, and so is what it gives; of one
/// only what does not lie row by row.
Tensor te_flash_attention(const TeAttention& options, const Tensor& query, const Tensor& key, const Tensor& value) {
  const bool several = query.size(1) > 1;
  const auto by_batch = [several](const Tensor& x) { return several ? contiguous_copy(x) : contiguous(x); };
  const Tensor q = by_batch(query), k = by_batch(key), v = by_batch(value);
  Tensor result = te_fused_attention(options, q, k, v);
  return several ? contiguous_copy(result) : result;
}

Tensor attend(const MegatronConfig& config, MegatronMemory& memory, const Tensor& query, const Tensor& key,
              const Tensor& value, const MegatronAttended& attended) {
  const bool pads = attended.key_padding.defined();
  const MegatronLayout& options = config.options;
  if (options.attention == MegatronAttention::kLocal) {  // dot_product_attention.py, matmul_input_buffer
    memory.use_global_buffer(query.size(1) * query.size(2) * query.size(0) * key.size(0), query.dtype());
    return te_unfused_attention(query, key, value, config.attention_dropout,
                                {.hidden = {},
                                 .fused = options.fuses_softmax,
                                 .mask = attended.mask,
                                 .scales = options.scales_by_layer,
                                 .in_float32 = options.softmax_in_float32 || options.scales_by_layer});
  }
  if (options.attention == MegatronAttention::kUnfused) {
    MaskedSoftmax softmax;
    if (pads) softmax.hidden = te_full_mask(attended.query_padding, attended.key_padding);
    return te_unfused_attention(query, key, value, config.attention_dropout, softmax);
  }
  // dot_product_attention/utils.py, get_qkv_layout: views of one product are taken as they are only where all three
  // are, or key and value of another sequence; else each is made contiguous.
  const bool interleaved = key.block() == value.block() && (query.block() == key.block() || attended.context.defined());
  const TeAttention how{config.parallel.context, context_type(config.parallel), config.attention_dropout, !pads};
  if (options.attention == MegatronAttention::kFlash) return te_flash_attention(how, query, key, value);
  if (interleaved) return te_fused_attention(how, query, key, value);
  const Tensor q = contiguous(query), k = contiguous(key), v = contiguous(value);
  return te_fused_attention(how, q, k, v);
}

}  // namespace

std::unique_ptr<MegatronAttentionLayer> build_self_attention(ModuleBuilder& b, const MegatronConfig& config,
                                                             MegatronMemory& memory) {
  return std::make_unique<SelfAttention>(b, config, memory);
}

std::unique_ptr<MegatronAttentionLayer> build_latent_attention(ModuleBuilder& b, const MegatronConfig& config,
                                                               MegatronMemory& memory) {
  return std::make_unique<LatentAttention>(b, config, memory);
}

std::unique_ptr<MegatronAttentionLayer> build_cross_attention(ModuleBuilder& b, const MegatronConfig& config,
                                                              MegatronMemory& memory) {
  return std::make_unique<CrossAttention>(b, config, memory);
}

Tensor megatron_core_attention(const MegatronConfig& config, MegatronMemory& memory, const Tensor& query,
                               const Tensor& key, const Tensor& value, const MegatronAttended& attended) {
  if (config.checkpointing != Checkpointing::kSelective) return attend(config, memory, query, key, value, attended);
  // recompute_modules ["core_attn"]: query, key and value are kept, the rest is computed again.
  return run_checkpointed_reentrant({query, key, value}, 3, [&config, &memory, attended](const KeptTensors& kept) {
    return attend(config, memory, kept[0], kept[1], kept[2], attended);
  });
}

}  // namespace memcalc
