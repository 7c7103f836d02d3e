// Megatron-core's GPTModel (megatron/core/models/gpt/gpt_model.py) as one model chunk of one rank: embedding, layers,
// final norm, head and loss, as far as the chunk has them.
// MIRRORS(megatron, "core/models/gpt/gpt_model.py", "0.14.0")
#pragma once

#include <memory>
#include <vector>

#include "memcalc/models/megatron_config.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/ops/megatron_memory.h"
#include "memcalc/symbolic/ops/transformer_engine.h"

namespace memcalc {

/// What get_batch() hands a chunk: nothing to one without embedding and loss.
struct MegatronBatch {
  Tensor tokens, position_ids;  // [b, s] int64
  Tensor labels, loss_mask;     // [b, s] int64, float32
};

/// A layer's weight and how TransformerEngine runs it.
struct MegatronLinear {
  TeLinear layer;
  Tensor norm_weight, norm_bias, weight, bias;

  /// `in` and `out` of the whole layer; with a norm in front a TELayerNormColumnParallelLinear.
  MegatronLinear(ModuleBuilder& b, std::string_view name, MegatronMemory& memory, ParallelMode mode, std::int64_t in,
                 std::int64_t out, bool with_bias, bool with_norm, bool rms);
  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return norm_weight.defined() ? te_layer_norm_linear(layer, x) : te_linear(layer, x);
  }
};

/// TENorm.
struct MegatronNorm {
  MegatronMemory* memory = nullptr;
  bool rms = true;
  Tensor weight, bias;
  MegatronNorm() = default;
  MegatronNorm(ModuleBuilder& b, std::string_view name, MegatronMemory& memory, std::int64_t width, bool rms);
  [[nodiscard]] Tensor operator()(const Tensor& x) const { return te_norm(*memory, x, rms); }
};

/// attention.py, SelfAttention, and multi_latent_attention.py, MLASelfAttention.
class MegatronAttentionLayer {
 public:
  virtual ~MegatronAttentionLayer() = default;
  [[nodiscard]] virtual Tensor forward(const Tensor& hidden_states) const = 0;
};
[[nodiscard]] std::unique_ptr<MegatronAttentionLayer> build_self_attention(ModuleBuilder& b,
                                                                           const MegatronConfig& config,
                                                                           MegatronMemory& memory);
[[nodiscard]] std::unique_ptr<MegatronAttentionLayer> build_latent_attention(ModuleBuilder& b,
                                                                             const MegatronConfig& config,
                                                                             MegatronMemory& memory);
/// ssm/mamba_mixer.py, MambaMixer, which begins with its layer's norm.
[[nodiscard]] std::unique_ptr<MegatronAttentionLayer> build_mamba_mixer(ModuleBuilder& b, const MegatronConfig& config,
                                                                        MegatronMemory& memory);
/// core_attention: one of the backends, recomputed in backward where the run asks for it.
[[nodiscard]] Tensor megatron_core_attention(const MegatronConfig& config, MegatronMemory& memory, const Tensor& query,
                                             const Tensor& key, const Tensor& value);

/// mlp.py, MLP, and moe/moe_layer.py, MoELayer.
class MegatronMlpLayer {
 public:
  virtual ~MegatronMlpLayer() = default;
  [[nodiscard]] virtual Tensor forward(const Tensor& hidden_states) const = 0;
};
struct MegatronMlp : MegatronMlpLayer {
  /// `with_norm`: linear_fc1 begins with the layer's norm.
  MegatronMlp(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, std::int64_t ffn_hidden_size,
              bool with_norm);
  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const override;

  MegatronLinear linear_fc1, linear_fc2;
  bool swiglu, squares_relu;
};
[[nodiscard]] std::unique_ptr<MegatronMlpLayer> build_moe_layer(ModuleBuilder& b, const MegatronConfig& config,
                                                                MegatronMemory& memory);

/// transformer_layer.py, TransformerLayer; ssm/mamba_layer.py and mlp_layer.py, which have one of its two parts.
class MegatronTransformerLayer {
 public:
  MegatronTransformerLayer(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, std::int64_t index);
  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const;

 private:
  const MegatronConfig& config_;
  MegatronNorm input_layernorm_, pre_mlp_layernorm_;        // where no linear layer begins with them
  std::unique_ptr<MegatronAttentionLayer> self_attention_;  // or the mixer
  std::unique_ptr<MegatronMlpLayer> mlp_;
};

class MegatronGpt {
 public:
  /// `config` and `memory` must outlive the model.
  MegatronGpt(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, const MegatronChunk& chunk);
  MegatronGpt(const MegatronGpt&) = delete;
  MegatronGpt& operator=(const MegatronGpt&) = delete;

  /// Hidden states [s, b, h] for the next chunk, or the scalar loss. `input`: from the chunk before; undefined where
  /// this one embeds.
  [[nodiscard]] Tensor forward(const MegatronBatch& batch, const Tensor& input);

  [[nodiscard]] const MegatronChunk& chunk() const { return chunk_; }

 private:
  void run_layers(Tensor& hidden_states) const;
  [[nodiscard]] Tensor embed(const MegatronBatch& batch);
  [[nodiscard]] Tensor loss(const MegatronBatch& batch, const Tensor& hidden_states);

  const MegatronConfig& config_;
  MegatronMemory& memory_;
  MegatronChunk chunk_;
  Tensor word_embeddings_, position_embeddings_, output_weight_;
  Tensor rotary_frequencies_, rotary_positions_;
  std::vector<std::unique_ptr<MegatronTransformerLayer>> layers_;
  MegatronNorm final_layernorm_;
};

}  // namespace memcalc
