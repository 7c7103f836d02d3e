// What transformers' decoders with rotary positions share, from LLaMA on: the rotary module, projections by head, the
// gated MLP, the loop over the layers, the language-model head. A family's file says how its layer goes.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/causal_lm_head.h"
#include "memcalc/models/model.h"
#include "memcalc/models/pipeline_stages.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

struct RotaryPositions {
  Tensor cos, sin;
};

/// LlamaRotaryEmbedding: two buffers of inverse frequencies; before 5.0 one.
struct RotaryEmbedding {
  Tensor inverse_frequencies, original_inverse_frequencies;

  bool yarn = false;

  RotaryEmbedding() = default;
  RotaryEmbedding(ModuleBuilder& b, std::int64_t rotary_dim, bool yarn = false);
  /// _init_weights computes the frequencies again and copies them; its local keeps them for a while.
  [[nodiscard]] Tensor initialize(ModuleBuilder& b) const;
  [[nodiscard]] RotaryPositions forward(const Tensor& x, const Tensor& position_ids,
                                        std::optional<DType> dtype = std::nullopt) const;
};

/// apply_rotary_pos_emb where only the first part of each head is rotated (GPT-NeoX).
void apply_partial_rotary(Tensor& query, Tensor& key, const RotaryPositions& positions);

/// attn_output.reshape(*input_shape, -1).contiguous()
[[nodiscard]] Tensor flatten_heads(const Tensor& attn_output, const Tensor& hidden_states);

/// Separate projections of query, key and value, grouped heads.
struct HeadProjections {
  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim = 0;
  AttentionOptions options;
  bool sliding = false;
  bool liger = false;

  HeadProjections(ModuleBuilder& b, const RotaryDecoderSpec& spec, const AttentionOptions& options, bool sliding,
                  bool qkv_bias, bool output_bias);

  /// projection(hidden_states).view(hidden_shape)
  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const;
  /// apply_rotary_pos_emb, or Liger's in its place.
  void rotate_heads(Tensor& query, Tensor& key, const RotaryPositions& positions) const;
  /// The rest of an attention layer, from the cache on. Query, key and value die as it returns.
  [[nodiscard]] AttentionResult attend(const Tensor& hidden_states, Tensor& query, Tensor& key, Tensor& value,
                                       const Tensor& mask, KeyValueCache* cache) const;
  /// The same with another attention function than attention_interface: interface(query, key, value).
  template <typename Interface>
  [[nodiscard]] AttentionResult attend(const Tensor& hidden_states, Tensor& query, Tensor& key, Tensor& value,
                                       KeyValueCache* cache, Interface interface) const {
    if (cache != nullptr) cache->update(key, value, sliding);
    AttentionResult result = interface(query, key, value);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = o_proj(result.output);
    drop(query, key, value);
    return result;
  }
};

/// down(act(gate(x)) * up(x))
struct GatedMlp {
  Linear gate_proj, up_proj, down_proj;
  std::string act_fn;
  bool liger;  // LigerSwiGLUMLP in its place

  GatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec, bool bias = false);
  GatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec, std::int64_t intermediate_size, bool bias);
  [[nodiscard]] Tensor forward(const Tensor& x) const;
};

/// LlamaAttention.forward, which Qwen2's and Gemma's repeat.
struct RotaryAttention : HeadProjections {
  using HeadProjections::HeadProjections;

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const;
};

/// Qwen3Attention.forward, which Qwen3-MoE's repeats: query and key are normalised head by head.
struct NormedRotaryAttention : HeadProjections {
  RmsNorm q_norm, k_norm;

  NormedRotaryAttention(ModuleBuilder& b, const RotaryDecoderSpec& spec, const RunSpec& run, bool sliding);
  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const;
};

/// What a layer's half is called with: x, or, where tensor parallelism splits the sequence, the whole of it in
/// `gathered`, which lives as long as the call.
[[nodiscard]] const Tensor& input_of(const Tensor& x, Tensor& gathered);

/// A layer's place, for families whose layers differ by it.
struct LayerIndex {
  std::int64_t value = 0;
};

/// LlamaDecoderLayer, which Qwen2's, Qwen3's and Gemma's repeat: a norm before each half. SelfAttention is constructed
/// from (builder, spec, run, sliding).
template <typename Spec, typename SelfAttention, typename Norm, typename Mlp = GatedMlp>
struct PreNormLayer {
  SelfAttention self_attn;
  Mlp mlp;
  Norm input_layernorm, post_attention_layernorm;

  PreNormLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding)
      : PreNormLayer(b, spec, run, sliding, [&] { return Mlp(b, spec); }) {}

  /// `build_mlp` makes the Mlp.
  template <std::invocable BuildMlp>
  PreNormLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding, BuildMlp build_mlp)
      : self_attn(b.scope("self_attn", [&] { return SelfAttention(b, spec, run, sliding); })),
        mlp(b.scope("mlp", build_mlp)),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    Tensor whole;  // PrepareModuleInput
    AttentionResult attention = self_attn.forward(input_of(hidden_states, whole), positions, mask, cache);
    whole.reset();
    hidden_states = std::move(attention.output);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = mlp.forward(input_of(hidden_states, whole));
    whole.reset();
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

/// lm_head, which shares the embedding's weight where `tied`.
[[nodiscard]] Linear language_model_head(ModuleBuilder& b, const Embedding& embedding, bool tied, std::int64_t in,
                                         std::int64_t vocabulary, bool bias = false);

[[nodiscard]] AttentionOptions causal_attention(const RunSpec& run, double attention_dropout);

/// Which masks a model makes, and which of its layers use the sliding one.
struct MaskPlan {
  bool full = true;
  bool sliding = false;
  bool mapping = false;               // kept in a dict by layer type, with the arguments they are made from
  bool mapping_has_positions = true;  // which are position_ids, too
  std::vector<bool> sliding_layers;   // empty: all or none, as `full` says

  /// One mask for every layer: of the window where there is one.
  [[nodiscard]] static MaskPlan single(const RotaryDecoderSpec& spec);
  [[nodiscard]] bool is_sliding(std::int64_t layer) const {
    return sliding_layers.empty() ? !full : sliding_layers[static_cast<std::size_t>(layer)];
  }
};

/// …ForCausalLM, or …ForSequenceClassification as the task says. A Family names its Spec, Layer, Norm, WordEmbedding
/// and Rotary, and the rest of what differs:
///   static MaskPlan mask_plan(const Spec&);
///   static bool final_softcap(const Spec&);
///   static std::int64_t rotary_dim(const Spec&);
///   kTrainedWithoutCacheOnce: before 5.0 its training had no key-value cache;
///   kRotaryByLayerType: local and global layers have positions of their own; kFloat32Positions: no cast;
///   kPositionIdsFirst: the layers are called with position_ids before the positions.
template <typename Family>
class RotaryDecoderForCausalLm : public Model, public PipelineStages {
  using Spec = typename Family::Spec;
  using Layer = typename Family::Layer;
  using Rotary = typename Family::Rotary;

 public:
  RotaryDecoderForCausalLm(const Spec& spec, const RunSpec& run, ModuleBuilder& b)
      : run_(run), masks_(Family::mask_plan(spec)), final_softcap_(Family::final_softcap(spec)) {
    check_activation_function(spec.hidden_act);
    loss_shifts_labels = run.task == Task::kCausalLm;
    sliding_window = spec.sliding_window;
    if constexpr (requires { spec.experts.per_token; }) experts_per_token_ = spec.experts.per_token;
    b.scope("model", [&] {
      embed_tokens_ = typename Family::WordEmbedding(b, "embed_tokens", spec.vocab_size, spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return make_layer(b, spec, run, i); }));
        has_full_layers_ |= !masks_.is_sliding(i);
        has_sliding_layers_ |= masks_.is_sliding(i);
      }
      norm_ = typename Family::Norm(b, "norm", spec.hidden_size);
      return 0;
    });
    for (const bool sliding : {false, true}) {
      if (has_rotary(sliding)) rotary_emb_[sliding ? 1 : 0] = Rotary(b, Family::rotary_dim(spec), spec.yarn_positions);
    }
    Tensor current_frequencies;
    for (const bool sliding : {false, true}) {
      if (has_rotary(sliding)) current_frequencies = rotary_emb_[sliding ? 1 : 0].initialize(b);
    }
    current_frequencies.reset();
    classifier_ = sequence_classifier(b, run, spec.hidden_size, spec.num_labels);
    if (classifier_) return;
    lm_head_ = language_model_head(b, {embed_tokens_}, spec.tie_word_embeddings, spec.hidden_size, spec.vocab_size);
  }

  [[nodiscard]] ModelOutput forward(const Batch& batch) override {
    ModelOutput output;
    KeyValueCache* cache = caches(batch) ? self_attention_cache_of(run_, batch, output) : nullptr;
    std::vector<Tensor> router_logits;  // of mixtures of experts, which the backbone's output holds until the end
    Tensor hidden_states;
    {
      const bool records = batch.fused_head != nullptr && batch.fused_head->balances_experts;
      const Scoped recording(batch.input_ids.tape().modes.router_logits, records ? &router_logits : nullptr);
      hidden_states = decode(batch, cache);
    }
    predict(classifier_, lm_head_, hidden_states, batch, output,
            {.softcaps = final_softcap_,
             .liger = run_.fine_tuning.liger,
             .router_logits = &router_logits,
             .experts_per_token = experts_per_token_});
    for (Tensor& each : router_logits) each.reset();
    return output;
  }

  [[nodiscard]] std::shared_ptr<void> keep_stages(const std::vector<ModelStage>& stages) override {
    if (Family::kRotaryByLayerType || Family::kPositionIdsFirst || masks_.sliding || final_softcap_ || classifier_) {
      throw refusal(rules::kStages, {"this model"});
    }
    auto rest = std::make_shared<Rest>();
    rest->parameters.swap(parameters);
    rest->layers.swap(layers_);
    first_layers_.clear();
    for (const ModelStage& stage : stages) {
      for (const Parameter& each : rest->parameters) {
        if (stage.holds(each.name)) parameters.push_back(each);
      }
      first_layers_.push_back(static_cast<std::int64_t>(layers_.size()) - stage.first_layer);
      for (std::int64_t i = 0; i < stage.layers; ++i) {
        layers_.push_back(std::move(rest->layers[static_cast<std::size_t>(stage.first_layer + i)]));
      }
    }
    stages_ = stages;
    const auto any = [&](bool ModelStage::*does) {
      return std::any_of(stages.begin(), stages.end(), [&](const ModelStage& each) { return each.*does; });
    };
    if (!any(&ModelStage::embeds)) embed_tokens_ = {};
    if (!any(&ModelStage::predicts)) {
      norm_ = {};
      lm_head_ = {};
    }
    return rest;
  }

  // As torch.distributed.pipelining's examples write a stage of transformers' modules: positions, rotary embedding and
  // layers without a mask or a cache.
  [[nodiscard]] Tensor forward_stage(const ModelStage& stage, const Tensor& x) override {
    Tensor hidden_states = stage.embeds ? embed_tokens_(x) : x;
    Tensor position_ids = unsqueeze(no_grad::arange(hidden_states.tape(), hidden_states.size(1)), 0);
    RotaryPositions positions = rotary_emb_[0].forward(hidden_states, position_ids, std::nullopt);
    for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.layers; ++i) {
      const Layer& layer = layers_[index_of(stage, i)];
      const KeptTensors keywords = {Tensor(), positions.cos, positions.sin, position_ids};
      hidden_states = checkpointed(run_, {hidden_states}, keywords, [&layer](const KeptTensors& kept) {
        return layer.forward(kept[0], {kept[2], kept[3]}, kept[1], nullptr);
      });
    }
    if (stage.predicts) {
      const Tensor normed = norm_(hidden_states);
      hidden_states = lm_head_(normed);
    }
    drop(position_ids, positions.cos, positions.sin);
    return hidden_states;
  }

 private:
  /// Dies in the order of module.parameters().
  struct Rest {
    std::vector<Parameter> parameters;
    std::vector<Layer> layers;

    Rest() = default;
    Rest(const Rest&) = delete;
    Rest& operator=(const Rest&) = delete;
    ~Rest() {
      layers.clear();
      for (Parameter& each : parameters) each.tensor.reset();
    }
  };

  /// Where a layer of a stage that was kept stands.
  [[nodiscard]] std::size_t index_of(const ModelStage& stage, std::int64_t layer) const {
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      if (stages_[i].first_layer == stage.first_layer) return static_cast<std::size_t>(layer + first_layers_[i]);
    }
    return static_cast<std::size_t>(layer);
  }

  [[nodiscard]] Layer make_layer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, std::int64_t i) const {
    if constexpr (std::is_constructible_v<Layer, ModuleBuilder&, const Spec&, const RunSpec&, bool, LayerIndex>) {
      return Layer(b, spec, run, masks_.is_sliding(i), LayerIndex{i});
    } else {
      return Layer(b, spec, run, masks_.is_sliding(i));
    }
  }

  [[nodiscard]] bool has_rotary(bool sliding) const {
    if constexpr (Family::kRotaryByLayerType) return sliding ? has_sliding_layers_ : has_full_layers_;
    return !sliding;
  }

  [[nodiscard]] std::int64_t layers_of(bool sliding) const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      count += masks_.is_sliding(static_cast<std::int64_t>(i)) == sliding;
    return count;
  }

  [[nodiscard]] bool caches(const Batch& batch) const {
    if (!Family::kTrainedWithoutCacheOnce) return true;
    const Tape& tape = batch.input_ids.tape();
    return tape.behaviors.gemma_caches_in_training || !tape.modes.training;
  }

  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const {
    Tensor hidden_states = embed_tokens_(batch.input_ids);
    Tensor inputs_embeds = hidden_states;
    Tensor position_ids = position_ids_of(batch, hidden_states);
    std::array<Tensor, 2> masks;  // full, sliding
    // Packed sequences are looked for in position_ids, if the masks get any and there is no cache.
    PastTokens past(cache);
    past.cached |= masks_.mapping && !masks_.mapping_has_positions;
    if (masks_.full) masks[0] = create_causal_mask(run_, hidden_states, batch, past);
    if (masks_.sliding) masks[1] = create_causal_mask(run_, hidden_states, batch, past, sliding_window);
    std::array<RotaryPositions, 2> positions;
    for (const bool sliding : {false, true}) {
      if (!has_rotary(sliding)) continue;
      const std::optional<DType> dtype = Family::kFloat32Positions ? std::optional(DType::kFloat32) : std::nullopt;
      positions[sliding ? 1 : 0] = rotary_emb_[sliding ? 1 : 0].forward(hidden_states, position_ids, dtype);
      if (!Family::kRotaryByLayerType || !hidden_states.tape().behaviors.gemma3_rotates_per_layer) continue;
      for (std::int64_t more = 1; more < layers_of(sliding); ++more) {  // a dict keeps the last of each kind
        positions[sliding ? 1 : 0] = rotary_emb_[sliding ? 1 : 0].forward(hidden_states, position_ids, dtype);
      }
    }
    if constexpr (requires { embed_tokens_.is_scaled_late(); }) {
      if (embed_tokens_.is_scaled_late()) hidden_states = multiply_scalar(hidden_states);
    }
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      const std::size_t type = masks_.is_sliding(static_cast<std::int64_t>(i)) ? 1 : 0;
      const RotaryPositions& own = positions[Family::kRotaryByLayerType ? type : 0];
      // position_ids reach no layer's arithmetic, but a checkpoint keeps them among the arguments.
      constexpr std::size_t kCos = Family::kPositionIdsFirst ? 3 : 2;
      const KeptTensors keywords = Family::kPositionIdsFirst ? KeptTensors{masks[type], position_ids, own.cos, own.sin}
                                                             : KeptTensors{masks[type], own.cos, own.sin, position_ids};
      hidden_states = checkpointed(
          run_, {hidden_states}, keywords,
          [&layer, cache](const KeptTensors& kept) {
            return layer.forward(kept[0], {kept[kCos], kept[kCos + 1]}, kept[1], cache);
          },
          cache);
    }
    hidden_states = norm_(hidden_states);
    if (masks_.mapping && !masks_.mapping_has_positions) position_ids.reset();
    if (masks_.mapping) {
      drop(masks[0], masks[1], inputs_embeds, position_ids);
    } else {
      drop(position_ids, inputs_embeds, masks[0], masks[1]);
    }
    for (RotaryPositions& own : positions) drop(own.cos, own.sin);
    return hidden_states;
  }

  RunSpec run_;
  MaskPlan masks_;
  bool final_softcap_;
  std::int64_t experts_per_token_ = 0;
  typename Family::WordEmbedding embed_tokens_;
  std::vector<Layer> layers_;
  std::vector<ModelStage> stages_;          // of a pipeline, where only these were kept
  std::vector<std::int64_t> first_layers_;  // of each: from a layer's number to its place
  typename Family::Norm norm_;
  bool has_full_layers_ = false, has_sliding_layers_ = false;
  std::array<Rotary, 2> rotary_emb_;  // full, sliding; one for both unless kRotaryByLayerType
  std::optional<SequenceClassifier> classifier_;
  Linear lm_head_;
};

/// What most families answer to RotaryDecoderForCausalLm.
template <typename SpecOfFamily, typename LayerOfFamily>
struct RotaryFamily {
  using Spec = SpecOfFamily;
  using Layer = LayerOfFamily;
  using Norm = RmsNorm;
  using WordEmbedding = Embedding;
  using Rotary = RotaryEmbedding;
  static constexpr bool kTrainedWithoutCacheOnce = false;
  static constexpr bool kRotaryByLayerType = false;
  static constexpr bool kFloat32Positions = false;
  static constexpr bool kPositionIdsFirst = false;
  [[nodiscard]] static MaskPlan mask_plan(const Spec& spec) { return MaskPlan::single(spec); }
  [[nodiscard]] static bool final_softcap(const Spec&) { return false; }
  [[nodiscard]] static std::int64_t rotary_dim(const Spec& spec) { return spec.head_dim; }
};

}  // namespace memcalc
