// Megatron-core's modules (megatron/core/transformer, models/common), of which its models are made.
// MIRRORS(megatron, "core/models/common/embeddings/language_model_embedding.py", "0.14.0")
// MIRRORS(megatron, "core/models/common/language_module/language_module.py", "0.14.0")
#pragma once

#include <memory>
#include <vector>

#include "memcalc/models/megatron_config.h"
#include "memcalc/models/megatron_model.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/ops/megatron_memory.h"
#include "memcalc/symbolic/ops/transformer_engine.h"

namespace memcalc {

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

/// What attention is given beside its queries: nothing where it is causal.
struct MegatronAttended {
  Tensor context;                     // of cross-attention: the encoder's output
  Tensor query_padding, key_padding;  // bool, [b, 1, 1, s]: a padding mask, for TransformerEngine
  Tensor mask;                        // bool, [b, 1, sq, sk]: the same for Megatron's own attention
};

/// attention.py, SelfAttention and CrossAttention, and multi_latent_attention.py, MLASelfAttention.
class MegatronAttentionLayer {
 public:
  virtual ~MegatronAttentionLayer() = default;
  [[nodiscard]] virtual Tensor forward(const Tensor& hidden_states, const MegatronAttended& attended) const = 0;
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
[[nodiscard]] std::unique_ptr<MegatronAttentionLayer> build_cross_attention(ModuleBuilder& b,
                                                                            const MegatronConfig& config,
                                                                            MegatronMemory& memory);
/// core_attention: one of the backends, recomputed in backward where the run asks for it.
[[nodiscard]] Tensor megatron_core_attention(const MegatronConfig& config, MegatronMemory& memory, const Tensor& query,
                                             const Tensor& key, const Tensor& value, const MegatronAttended& attended);

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

/// What each layer of a stack is given beside its input.
struct MegatronLayerInputs {
  MegatronAttended self, cross;
};

/// transformer_layer.py, TransformerLayer; ssm/mamba_layer.py and mlp_layer.py, which have one of its two parts. With
/// `cross_attends` T5's decoder.
class MegatronTransformerLayer {
 public:
  MegatronTransformerLayer(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, std::int64_t index,
                           bool cross_attends);
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const MegatronLayerInputs& inputs) const;

 private:
  const MegatronConfig& config_;
  MegatronNorm input_layernorm_, pre_cross_attn_layernorm_, pre_mlp_layernorm_;  // where no linear begins with them
  std::unique_ptr<MegatronAttentionLayer> self_attention_, cross_attention_;     // the first one may be a mixer
  std::unique_ptr<MegatronMlpLayer> mlp_;
};

/// transformer_block.py, TransformerBlock: layers and, where `has_norm`, the final norm.
class MegatronBlock {
 public:
  MegatronBlock(ModuleBuilder& b, std::string_view name, const MegatronConfig& config, MegatronMemory& memory,
                std::int64_t first_layer, std::int64_t layers, bool has_norm, bool cross_attends = false);
  /// `hidden_states`: replaced layer by layer.
  void run_layers(Tensor& hidden_states, const MegatronLayerInputs& inputs) const;
  [[nodiscard]] Tensor normalize(const Tensor& hidden_states) const { return final_layernorm_(hidden_states); }

 private:
  const MegatronConfig& config_;
  std::vector<std::unique_ptr<MegatronTransformerLayer>> layers_;
  MegatronNorm final_layernorm_;
};

/// language_model_embedding.py, LanguageModelEmbedding, where the chunk embeds.
class MegatronEmbedding {
 public:
  MegatronEmbedding(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory);
  [[nodiscard]] Tensor operator()(const Tensor& tokens) const;

 private:
  const MegatronConfig& config_;
  MegatronMemory& memory_;
  Tensor word_embeddings_, position_embeddings_, tokentype_embeddings_;
};

/// The head over the vocabulary, split or shared, and the loss of each token (language_module.py).
class MegatronHead {
 public:
  /// `holds_weight`: it is not the embedding of the same chunk.
  MegatronHead(ModuleBuilder& b, const MegatronConfig& config, MegatronMemory& memory, bool holds_weight,
               bool with_bias);
  /// The loss of each token, summed over those that `batch.loss_mask` has (pretrain_gpt.py, loss_func). `hidden_states`
  /// dies when the losses are known.
  [[nodiscard]] Tensor summed_loss(const MegatronBatch& batch, Tensor hidden_states) const;

 private:
  const MegatronConfig& config_;
  MegatronMemory& memory_;
  bool has_bias_;
  Tensor weight_, bias_;
};

}  // namespace memcalc
