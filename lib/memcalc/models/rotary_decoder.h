// What transformers' decoders with rotary positions share, from LLaMA on: the rotary module, projections by head, the
// gated MLP, the loop over the layers, the language-model head. A family's file says how its layer goes.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/causal_lm_head.h"
#include "memcalc/models/model.h"
#include "memcalc/models/pipeline_stages.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/decoder_spec.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

class ImageParts;
struct TextInputs;

struct RotaryPositions {
  Tensor cos, sin;
  Tensor position_ids;          // as a layer is called with them
  Tensor recurrent_mask;        // of layers that have attention and a state space (MaskPlan::parallel)
  Tensor* handed_on = nullptr;  // what the layer before returned beside its output, and this one is to (DecoderPlan)
};

/// LlamaRotaryEmbedding: two buffers of inverse frequencies; before 5.0 one.
struct RotaryEmbedding {
  Tensor inverse_frequencies, original_inverse_frequencies;

  bool yarn = false;

  RotaryEmbedding() = default;
  /// `one`: whatever the release.
  RotaryEmbedding(ModuleBuilder& b, std::int64_t rotary_dim, bool yarn = false, bool one = false);
  /// _init_weights computes the frequencies again and copies them; its local keeps them for a while.
  [[nodiscard]] Tensor initialize(ModuleBuilder& b) const;
  [[nodiscard]] RotaryPositions forward(const Tensor& x, const Tensor& position_ids,
                                        std::optional<DType> dtype = std::nullopt) const;
};

/// apply_rotary_pos_emb where only the first part of each head is rotated (GPT-NeoX).
void apply_partial_rotary(Tensor& query, Tensor& key, const RotaryPositions& positions);

/// GLM's apply_rotary_pos_emb: pairs of neighbours are rotated, in the first part of each head or all of it.
void rotate_neighbours(Tensor& query, Tensor& key, const RotaryPositions& positions);
/// (x * cos) + (rotate_half(x) * sin) where rotate_half turns pairs of neighbours.
[[nodiscard]] Tensor rotated_neighbours(const Tensor& x, const Tensor& cos, const Tensor& sin);
/// ERNIE 4.5's: the same of whole heads, whose numbers are float32 meanwhile.
void rotate_neighbours_in_float32(Tensor& query, Tensor& key, const RotaryPositions& positions);

/// OLMo's apply_rotary_pos_emb: cos and sin are float32, and the result is cast back.
void rotate_in_float32(Tensor& query, Tensor& key, const RotaryPositions& positions);

/// attn_output.reshape(*input_shape, -1).contiguous()
[[nodiscard]] Tensor flatten_heads(const Tensor& attn_output, const Tensor& hidden_states);

/// Separate projections of query, key and value, grouped heads.
struct HeadProjections {
  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim = 0;
  AttentionOptions options;
  bool sliding = false;
  bool liger = false;
  bool unsloth = false;
  bool rotates = true;  // else a layer without positions (NoPE)
  void (*rotation)(Tensor& query, Tensor& key, const RotaryPositions&) = nullptr;  // null: apply_rotary_pos_emb
  double output_dropout = 0;                                                       // behind o_proj

  HeadProjections(ModuleBuilder& b, const RotaryDecoderSpec& spec, const AttentionOptions& options, bool sliding,
                  bool qkv_bias, bool output_bias);

  /// projection(hidden_states).view(hidden_shape)
  [[nodiscard]] Tensor heads(const Linear& projection, const Tensor& hidden_states) const;
  /// apply_rotary_pos_emb, or Liger's in its place; nothing where the layer does not rotate.
  void rotate_heads(Tensor& query, Tensor& key, const RotaryPositions& positions) const;
  /// The layer as Unsloth patches it; `normed`: query and key are normalised head by head.
  [[nodiscard]] AttentionResult forward_by_unsloth(const Tensor& hidden_states, bool normed) const;
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
    if (output_dropout > 0) result.output = dropout(result.output, output_dropout);
    drop(query, key, value);
    return result;
  }
};

/// down(act(gate(x)) * up(x))
struct GatedMlp {
  Linear gate_proj, up_proj, down_proj;
  std::string act_fn;
  bool liger;                 // LigerSwiGLUMLP in its place
  bool unsloth;               // LoRA_MLP
  double output_dropout = 0;  // behind down_proj

  GatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec, bool bias = false);
  GatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec, std::int64_t intermediate_size, bool bias);
  [[nodiscard]] Tensor forward(const Tensor& x) const;
};

/// down(up * act(gate)) of one projection that gives both (Phi-3, GLM).
struct FusedGatedMlp {
  Linear gate_up_proj, down_proj;
  std::string activation_fn;

  FusedGatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec);
  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const;
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
/// from (builder, spec, run, sliding). `kScalesHalves`: what a half adds is multiplied by a number (Granite).
template <typename Spec, typename SelfAttention, typename Norm, typename Mlp = GatedMlp, bool kScalesHalves = false>
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
    hidden_states = joined(residual, hidden_states);
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    Tensor router_logits;  // "hidden_states, _ = self.mlp(hidden_states)": a variable of the layer
    if constexpr (requires { mlp.forward(input, router_logits); }) {
      hidden_states = mlp.forward(input_of(hidden_states, whole), router_logits);
    } else {
      hidden_states = mlp.forward(input_of(hidden_states, whole));
    }
    whole.reset();
    hidden_states = joined(residual, hidden_states);
    drop(residual, attention.weights, router_logits);
    return hidden_states;
  }

 private:
  [[nodiscard]] static Tensor joined(const Tensor& residual, const Tensor& half) {
    if constexpr (kScalesHalves) return residual + multiply_scalar(half);
    return residual + half;
  }
};

/// Olmo2DecoderLayer, which EXAONE 4's repeats: a norm behind each half.
template <typename Spec, typename SelfAttention, typename Norm>
struct PostNormLayer {
  SelfAttention self_attn;
  GatedMlp mlp;
  Norm post_attention_layernorm, post_feedforward_layernorm;

  PostNormLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn", [&] { return SelfAttention(b, spec, run, sliding); })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec); })),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        post_feedforward_layernorm(b, "post_feedforward_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    AttentionResult attention = self_attn.forward(input, positions, mask, cache);
    Tensor hidden_states = std::move(attention.output);
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = mlp.forward(hidden_states);
    hidden_states = post_feedforward_layernorm(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

/// The forward of a layer with a norm before and behind each half (Gemma 2, GLM 4).
template <typename SelfAttention, typename Mlp, typename Norm>
[[nodiscard]] Tensor forward_between_norms(const Norm& before_attention, const SelfAttention& self_attn,
                                           const Norm& after_attention, const Norm& before_mlp, const Mlp& mlp,
                                           const Norm& after_mlp, const Tensor& input, const RotaryPositions& positions,
                                           const Tensor& mask, KeyValueCache* cache) {
  Tensor residual = input;
  Tensor hidden_states = before_attention(input);
  AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
  hidden_states = std::move(attention.output);
  hidden_states = after_attention(hidden_states);
  hidden_states = residual + hidden_states;
  residual = hidden_states;
  hidden_states = before_mlp(hidden_states);
  hidden_states = mlp.forward(hidden_states);
  hidden_states = after_mlp(hidden_states);
  hidden_states = residual + hidden_states;
  drop(residual, attention.weights);
  return hidden_states;
}

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
  std::vector<bool> linear_layers;    // empty: none; those take create_recurrent_attention_mask's
  bool both = false;                  // every layer takes that and the full one
  bool chunked = false;               // a sliding layer sees its chunk of the window's length (Llama 4)
  bool bidirectional = false;         // every token sees every other: a mask only of padding
  bool always = false;                // the full one is made where SDPA could be told is_causal, too

  /// One mask for every layer: of the window where there is one.
  [[nodiscard]] static MaskPlan single(const RotaryDecoderSpec& spec);
  /// A dict of the full mask, and of the sliding one where some layer slides (Qwen2).
  [[nodiscard]] static MaskPlan mapped(const std::vector<bool>& sliding_layers);
  /// A dict of the full mask and the one of layers with linear attention (Qwen3-Next).
  [[nodiscard]] static MaskPlan hybrid(const std::vector<bool>& linear_layers) {
    return {.mapping = true, .linear_layers = linear_layers};
  }
  /// A dict of the same two, of which every layer gets both (Falcon-H1).
  [[nodiscard]] static MaskPlan parallel() { return {.mapping = true, .both = true}; }
  [[nodiscard]] bool has_recurrent() const { return both || !linear_layers.empty(); }
  [[nodiscard]] bool is_linear(std::int64_t layer) const {
    return !linear_layers.empty() && linear_layers[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] bool is_sliding(std::int64_t layer) const {
    return sliding_layers.empty() ? !full : sliding_layers[static_cast<std::size_t>(layer)];
  }
};

/// A layer of a decoder; its family says how it goes.
class DecoderLayer {
 public:
  virtual ~DecoderLayer() = default;
  [[nodiscard]] virtual Tensor forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                       const Tensor& mask, KeyValueCache* cache) const = 0;
  /// The model's loop leaves it out: it looks at images, and there are none (Llama 3.2 Vision).
  [[nodiscard]] virtual bool is_left_out() const { return false; }
};

/// A family's own struct as a DecoderLayer: constructed from (builder, spec, run, sliding), and its LayerIndex where it
/// differs by that.
template <typename Layer>
class DecoderLayerOf final : public DecoderLayer {
 public:
  template <typename... Arguments>
  explicit DecoderLayerOf(Arguments&&... arguments) : layer_(std::forward<Arguments>(arguments)...) {}
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const override {
    return layer_.forward(hidden_states, positions, mask, cache);
  }
  [[nodiscard]] bool is_left_out() const override {
    if constexpr (requires { layer_.is_left_out(); }) return layer_.is_left_out();
    return false;
  }

 private:
  Layer layer_;
};

/// The embedding of a family that scales it; `late`: after the masks were made.
struct WordEmbedding {
  Tensor weight;
  std::function<Tensor(const Tensor& input_ids)> look_up;
  bool is_scaled_late = false;
};

/// What a model makes of its position ids: those that layers are called with, and those that are rotated by.
struct PositionIds {
  Tensor of_layers, rotated;
};

/// What differs between the families of RotaryDecoder. decoder_plan() is LLaMA's.
struct DecoderPlan {
  MaskPlan masks;
  std::int64_t rotary_dim = 0;  // of head_dim: the part that is rotated; 0: there are no positions
  LogitsChange logits = LogitsChange::kNone;
  bool trained_without_cache_once = false;  // before 5.0 its training had no key-value cache
  bool one_inverse_frequency = false;       // of a class on the hub that was written before 5.0
  bool rotary_by_layer_type = false;    // local and global layers have positions of their own; global ones are yarn's
  bool rotated_per_layer_once = false;  // by every layer of a type anew, in some releases
  bool float32_positions = false;       // cosines and sines are not cast
  double embedding_dropout = 0;         // behind the masks
  bool position_ids_first = false;      // the layers are called with position_ids before the positions
  bool mask_behind_positions = false;   // and with the mask between them
  bool layers_take_position_ids = true;
  bool layers_hand_on = false;       // a tensor from one to the next
  bool holds_layer_outputs = false;  // a variable of its own has each layer's output until the next one's is there
  PositionIds (*position_ids)(const Tensor& position_ids, std::int64_t rows) = nullptr;  // null: one for both
  std::int64_t experts_per_token = 0;  // of mixtures: whose router logits a trainer may balance
  bool has_classifier = true;          // transformers has its ...ForSequenceClassification
  /// What stands around the decoder in a model of images and text (models/image_text.h); null: nothing.
  std::shared_ptr<ImageParts> images;
  /// RotaryEmbedding::forward, or the family's own.
  RotaryPositions (*rotate)(const RotaryEmbedding&, const Tensor& x, const Tensor& position_ids,
                            std::optional<DType> dtype) = default_positions;
  std::function<WordEmbedding(ModuleBuilder&)> embedding;
  std::function<std::unique_ptr<DecoderLayer>(ModuleBuilder&, std::int64_t index, bool sliding)> layer;
  std::function<std::function<Tensor(const Tensor&)>(ModuleBuilder&)> norm;
  std::function<void(ModuleBuilder&)> late_buffers;  // behind the rotary module; null: there are none
  std::string_view backbone = "model";               // base_model_prefix
  std::string_view layers = "layers";                // the list's name
  bool scores_by_two_layers = false;                 // of the classifier: SequenceClassifier::Score

  [[nodiscard]] static RotaryPositions default_positions(const RotaryEmbedding& rotary, const Tensor& x,
                                                         const Tensor& position_ids, std::optional<DType> dtype) {
    return rotary.forward(x, position_ids, dtype);
  }
};

/// A plan's embedding of the family's own type.
template <typename Embedding>
[[nodiscard]] std::function<WordEmbedding(ModuleBuilder&)> embedding_of(const RotaryDecoderSpec& spec,
                                                                        std::string_view name = "embed_tokens") {
  return [rows = spec.vocab_size, width = spec.hidden_size, name](ModuleBuilder& b) {
    const Embedding embedding(b, name, rows, width);
    WordEmbedding result{embedding.weight, embedding};
    if constexpr (requires { embedding.is_scaled_late(); }) result.is_scaled_late = embedding.is_scaled_late();
    return result;
  };
}

/// A plan's last norm of the family's own type.
template <typename Norm>
[[nodiscard]] std::function<std::function<Tensor(const Tensor&)>(ModuleBuilder&)> norm_of(
    const RotaryDecoderSpec& spec, std::string_view name = "norm") {
  return [width = spec.hidden_size, name](ModuleBuilder& b) -> std::function<Tensor(const Tensor&)> {
    return Norm(b, name, width);
  };
}

/// The plan of a family whose layers are `Layer`, as LLaMA's but for that. It refers to `spec` and `run`.
template <typename Layer, typename Norm = RmsNorm, typename Spec>
[[nodiscard]] DecoderPlan decoder_plan(const Spec& spec, const RunSpec& run) {
  DecoderPlan plan;
  plan.masks = MaskPlan::single(spec);
  plan.rotary_dim = spec.head_dim;
  plan.embedding = embedding_of<Embedding>(spec);
  plan.layer = [&spec, &run](ModuleBuilder& b, [[maybe_unused]] std::int64_t index,
                             bool sliding) -> std::unique_ptr<DecoderLayer> {
    if constexpr (std::is_constructible_v<Layer, ModuleBuilder&, const Spec&, const RunSpec&, bool, LayerIndex>) {
      return std::make_unique<DecoderLayerOf<Layer>>(b, spec, run, sliding, LayerIndex{index});
    } else {
      return std::make_unique<DecoderLayerOf<Layer>>(b, spec, run, sliding);
    }
  };
  plan.norm = norm_of<Norm>(spec);
  if constexpr (requires { spec.experts.per_token; }) plan.experts_per_token = spec.experts.per_token;
  return plan;
}

/// …ForCausalLM, or …ForSequenceClassification as the task says, of a family that is described by its plan.
class RotaryDecoder : public Model, public PipelineStages {
 public:
  RotaryDecoder(const RotaryDecoderSpec& spec, const RunSpec& run, ModuleBuilder& b, const DecoderPlan& plan);

  [[nodiscard]] ModelOutput forward(const Batch& batch) override;
  [[nodiscard]] std::shared_ptr<void> keep_stages(const std::vector<ModelStage>& stages) override;
  [[nodiscard]] Tensor forward_stage(const ModelStage& stage, const Tensor& x) override;

 private:
  using Layers = std::vector<std::unique_ptr<DecoderLayer>>;
  struct Rest;

  [[nodiscard]] std::size_t index_of(const ModelStage& stage, std::int64_t layer) const;
  [[nodiscard]] bool has_rotary(bool sliding) const;
  [[nodiscard]] bool caches(const Batch& batch) const;
  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache, ModelOutput& output) const;
  [[nodiscard]] Tensor decode_by_unsloth(const Batch& batch) const;
  [[nodiscard]] Tensor decode_embedded(const Batch& batch, KeyValueCache* cache, TextInputs inputs) const;

  RunSpec run_;
  std::int64_t max_position_embeddings_;
  DecoderPlan plan_;  // its makers are spent
  WordEmbedding embed_tokens_;
  Layers layers_;
  std::vector<ModelStage> stages_;          // of a pipeline, where only these were kept
  std::vector<std::int64_t> first_layers_;  // of each: from a layer's number to its place
  std::function<Tensor(const Tensor&)> norm_;
  bool has_full_layers_ = false, has_sliding_layers_ = false;
  std::array<RotaryEmbedding, 2> rotary_emb_;  // full, sliding; one for both unless rotary_by_layer_type
  std::optional<SequenceClassifier> classifier_;
  Linear lm_head_;
};

}  // namespace memcalc
