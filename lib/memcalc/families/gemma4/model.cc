// Gemma 4's text model: transformers models/gemma4/modeling_gemma4.py, and gemma4_unified's, which repeats it.
// MIRRORS(transformers, "models/gemma4/modeling_gemma4.py", "5.17.0")
// MIRRORS(transformers, "models/gemma4_unified/modeling_gemma4_unified.py", "5.17.0")
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/families/gemma/scaled_embedding.h"
#include "memcalc/families/gemma4/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/power_rms_norm.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/in_place.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// Gemma4TextScaledWordEmbedding: times a number, which is a buffer.
using Gemma4Embedding = ScaledWordEmbedding<false>;

/// shared_kv_states[layer_type]: keys and values of the last layer of the kind that has its own.
struct SharedStates {
  Tensor key, value;
};
using SharedByType = std::array<SharedStates, 2>;  // global, local

/// Gemma4TextAttention
struct Gemma4Attention {
  Linear q_proj;
  PowerRmsNorm q_norm, k_norm;
  std::optional<Linear> k_proj, v_proj;
  Linear o_proj;
  std::int64_t head_dim;
  AttentionOptions options;
  bool sliding, is_shared, stores;

  Gemma4Attention(ModuleBuilder& b, const Gemma4Spec& spec, const RunSpec& run, std::int64_t layer)
      : head_dim(sliding_at(spec, layer) ? spec.head_dim : spec.global_head_dim),
        options(causal_attention(run, spec.attention_dropout)),
        sliding(sliding_at(spec, layer)),
        is_shared(spec.shares_keys(layer)),
        stores(!is_shared && layer == last_of_its_kind(spec, sliding)) {
    const std::int64_t width = spec.hidden_size, queries = spec.num_attention_heads * head_dim;
    const std::int64_t keys = (sliding ? spec.num_key_value_heads : spec.global_key_value_heads) * head_dim;
    q_proj = Linear(b, "q_proj", width, queries, spec.attention_bias);
    q_norm = PowerRmsNorm(b, "q_norm", head_dim);
    if (!is_shared) {
      k_norm = PowerRmsNorm(b, "k_norm", head_dim);
      k_proj.emplace(b, "k_proj", width, keys, spec.attention_bias);
      if (sliding || !spec.keys_are_values) v_proj.emplace(b, "v_proj", width, keys, spec.attention_bias);
    }
    o_proj = Linear(b, "o_proj", queries, width, spec.attention_bias);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, SharedByType& shared, KeyValueCache* cache) const {
    const Shape shape{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    Tensor query_states = view(q_proj(hidden_states), shape);
    query_states = q_norm(query_states);
    query_states = rotated(query_states, positions);
    query_states = transpose(query_states, 1, 2);
    SharedStates& of_type = shared[sliding ? 1 : 0];
    Tensor key_states, value_states;
    if (is_shared) {
      key_states = of_type.key;
      value_states = of_type.value;
    } else {
      key_states = view((*k_proj)(hidden_states), shape);
      value_states = v_proj ? view((*v_proj)(hidden_states), shape) : key_states;
      key_states = k_norm(key_states);
      key_states = rotated(key_states, positions);
      key_states = transpose(key_states, 1, 2);
      value_states = PowerRmsNorm::without_scale(value_states);
      value_states = transpose(value_states, 1, 2);
      if (cache != nullptr) cache->update(key_states, value_states, sliding);
    }
    if (stores) {
      of_type.key = key_states;
      of_type.value = value_states;
    }
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = o_proj(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }

 private:
  [[nodiscard]] static bool sliding_at(const Gemma4Spec& spec, std::int64_t layer) {
    return spec.sliding_layers[static_cast<std::size_t>(layer)];
  }
  [[nodiscard]] static std::int64_t last_of_its_kind(const Gemma4Spec& spec, bool sliding) {
    std::int64_t layer = spec.num_hidden_layers - spec.kv_shared_layers - 1;
    while (layer >= 0 && sliding_at(spec, layer) != sliding) --layer;
    return layer;
  }
  /// apply_rotary_pos_emb(…, unsqueeze_dim=2)
  [[nodiscard]] static Tensor rotated(const Tensor& x, const RotaryPositions& positions) {
    const Tensor cos = unsqueeze(positions.cos, 2);
    const Tensor sin = unsqueeze(positions.sin, 2);
    return rotate(x, cos, sin);
  }
};

/// Gemma4TextRouter
struct Gemma4Router {
  std::int64_t top_k;
  Tensor scale, per_expert_scale;
  Linear proj;

  Gemma4Router(ModuleBuilder& b, const Gemma4Spec& spec)
      : top_k(spec.experts.per_token),
        scale(b.parameter("scale", {spec.hidden_size})),
        per_expert_scale(b.parameter("per_expert_scale", {spec.experts.count})),
        proj(b, "proj", spec.hidden_size, spec.experts.count, false) {}

  [[nodiscard]] Routing forward(const Tensor& x) const {
    Tensor hidden_states = PowerRmsNorm::without_scale(x);
    {
      const Tensor scaled = hidden_states * scale;
      hidden_states = multiply_scalar(scaled);
    }
    Tensor expert_scores = proj(hidden_states);
    Tensor router_probabilities = softmax(expert_scores, DType::kFloat32);
    Selection chosen = topk(router_probabilities, top_k);
    {
      const Tensor sums = sum_over(chosen.values, -1, true);
      chosen.values = divide_in_place(chosen.values, sums);
    }
    Tensor top_k_weights;  // the scales are gone before the weights that they multiply
    {
      const std::pair<int, Tensor> places[] = {{0, chosen.indices}};
      const Tensor scales = index(per_expert_scale, places);
      top_k_weights = chosen.values * scales;
    }
    chosen.values = std::move(top_k_weights);
    drop(hidden_states, expert_scores);
    return {std::move(router_probabilities), std::move(chosen.values), std::move(chosen.indices)};
  }
};

/// The experts of Gemma4TextDecoderLayer, beside its MLP.
struct Gemma4Mixture {
  Gemma4Router router;
  Experts experts;
  PowerRmsNorm post_feedforward_layernorm_1, post_feedforward_layernorm_2, pre_feedforward_layernorm_2;

  Gemma4Mixture(ModuleBuilder& b, const Gemma4Spec& spec)
      : router(b.scope("router", [&] { return Gemma4Router(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        post_feedforward_layernorm_1(b, "post_feedforward_layernorm_1", spec.hidden_size),
        post_feedforward_layernorm_2(b, "post_feedforward_layernorm_2", spec.hidden_size),
        pre_feedforward_layernorm_2(b, "pre_feedforward_layernorm_2", spec.hidden_size) {}
};

/// What Gemma4TextDecoderLayer makes of its layer's embedding.
struct Gemma4LayerInput {
  Linear per_layer_input_gate, per_layer_projection;
  PowerRmsNorm post_per_layer_input_norm;

  Gemma4LayerInput(ModuleBuilder& b, const Gemma4Spec& spec)
      : per_layer_input_gate(b, "per_layer_input_gate", spec.hidden_size, spec.per_layer_input, false),
        per_layer_projection(b, "per_layer_projection", spec.per_layer_input, spec.hidden_size, false),
        post_per_layer_input_norm(b, "post_per_layer_input_norm", spec.hidden_size) {}
};

/// Gemma4TextDecoderLayer
struct Gemma4Layer {
  Gemma4Attention self_attn;
  GatedMlp mlp;
  PowerRmsNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;
  Tensor layer_scalar;
  std::optional<Gemma4LayerInput> layer_input;
  std::optional<Gemma4Mixture> mixture;
  std::string act_fn;

  Gemma4Layer(ModuleBuilder& b, const Gemma4Spec& spec, const RunSpec& run, std::int64_t layer)
      : self_attn(b.scope("self_attn", [&] { return Gemma4Attention(b, spec, run, layer); })),
        mlp(b.scope("mlp", [&] { return GatedMlp(b, spec, mlp_width(spec, layer), false); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        pre_feedforward_layernorm(b, "pre_feedforward_layernorm", spec.hidden_size),
        post_feedforward_layernorm(b, "post_feedforward_layernorm", spec.hidden_size),
        layer_scalar(b.buffer({1}, b.dtype)),
        act_fn(spec.hidden_act) {
    if (spec.per_layer_input > 0) layer_input.emplace(b, spec);
    if (spec.experts.count > 0) mixture.emplace(b, spec);
  }

  [[nodiscard]] Tensor forward(const Tensor& input, const Tensor& per_layer_input, const RotaryPositions& positions,
                               const Tensor& mask, SharedByType& shared, KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor others, hidden_states_1, hidden_states_flat, hidden_states_2;  // others: what `_` holds
    Routing routing;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, shared, cache);
    others = std::move(attention.weights);
    hidden_states = std::move(attention.output);
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = pre_feedforward_layernorm(hidden_states);
    hidden_states = mlp.forward(hidden_states);
    if (mixture) {
      hidden_states_1 = mixture->post_feedforward_layernorm_1(hidden_states);
      hidden_states_flat = reshape(residual, {-1, residual.size(-1)});
      routing = mixture->experts.local(mixture->router.forward(hidden_states_flat));
      others = std::move(routing.router_logits);
      hidden_states_2 = mixture->pre_feedforward_layernorm_2(hidden_states_flat);
      hidden_states_2 = mixture->experts.forward(hidden_states_2, routing.top_k_index, routing.top_k_weights);
      hidden_states_2 = reshape(hidden_states_2, residual.shape());
      hidden_states_2 = mixture->post_feedforward_layernorm_2(hidden_states_2);
      hidden_states = hidden_states_1 + hidden_states_2;
    }
    hidden_states = post_feedforward_layernorm(hidden_states);
    hidden_states = residual + hidden_states;
    if (layer_input) {
      residual = hidden_states;
      hidden_states = layer_input->per_layer_input_gate(hidden_states);
      hidden_states = activation_function(act_fn, hidden_states);
      hidden_states = hidden_states * per_layer_input;
      hidden_states = layer_input->per_layer_projection(hidden_states);
      hidden_states = layer_input->post_per_layer_input_norm(hidden_states);
      hidden_states = residual + hidden_states;
    }
    // What its derivative saves is a tensor, which under a checkpoint runs the layer again before the gradient is made.
    hidden_states = multiply_in_place(hidden_states, layer_scalar);
    drop(residual, others, hidden_states_1, hidden_states_flat, routing.top_k_weights, routing.top_k_index,
         hidden_states_2);
    return hidden_states;
  }

 private:
  [[nodiscard]] static std::int64_t mlp_width(const Gemma4Spec& spec, std::int64_t layer) {
    return spec.intermediate_size * (spec.double_wide_mlp && spec.shares_keys(layer) ? 2 : 1);
  }
};

/// Of Gemma4TextModel: an embedding of each layer, packed in one.
struct Gemma4LayerInputs {
  std::int64_t layers, width;
  Gemma4Embedding embed_tokens_per_layer;
  Linear per_layer_model_projection;
  PowerRmsNorm per_layer_projection_norm;

  Gemma4LayerInputs(ModuleBuilder& b, const Gemma4Spec& spec)
      : layers(spec.num_hidden_layers),
        width(spec.per_layer_input),
        embed_tokens_per_layer(b, "embed_tokens_per_layer", spec.per_layer_vocabulary, layers * width),
        per_layer_model_projection(b, "per_layer_model_projection", spec.hidden_size, layers * width, false),
        per_layer_projection_norm(b, "per_layer_projection_norm", width) {
    embed_tokens_per_layer.product_requires_grad = false;  // enable_input_require_grads hooks the other embedding
  }

  /// get_per_layer_inputs, project_per_layer_inputs: [batch, tokens, layers, width]
  [[nodiscard]] Tensor forward(const Tensor& input_ids, const Tensor& inputs_embeds) const {
    const Shape shape{inputs_embeds.size(0), inputs_embeds.size(1), layers, width};
    const Tensor per_layer_inputs = reshape(embed_tokens_per_layer(input_ids), shape);
    Tensor per_layer_projection;
    {
      const Tensor projected = per_layer_model_projection(inputs_embeds);
      per_layer_projection = multiply_scalar(projected);
    }
    per_layer_projection = reshape(per_layer_projection, shape);
    per_layer_projection = per_layer_projection_norm(per_layer_projection);
    Tensor result;
    {
      const Tensor sum = per_layer_projection + per_layer_inputs;
      result = multiply_scalar(sum);
    }
    per_layer_projection.reset();
    return result;
  }
};

class Gemma4ForCausalLm final : public DecoderModel {
 public:
  Gemma4ForCausalLm(const Gemma4Spec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.hidden_act), sliding_layers_(spec.sliding_layers) {
    if (run.task == Task::kSequenceClassification) throw refusal(rules::kNoClassifier);
    if (run.attention == Attention::kFlash) {
      throw Error(ErrorCode::kUnsupported,
                  "attention flash: the flash-attn package takes heads of 256 numbers at most, and Gemma 4's global "
                  "layers have larger ones; accepted: --attn sdpa, eager");
    }
    sliding_window = spec.sliding_window;
    b.scope("model", [&] {
      embed_tokens_ = Gemma4Embedding(b, "embed_tokens", spec.vocab_size, spec.hidden_size);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return Gemma4Layer(b, spec, run, i); }));
      }
      norm_ = PowerRmsNorm(b, "norm", spec.hidden_size);
      return 0;
    });
    for (const bool sliding : {false, true}) {
      if (has_layers(sliding))
        rotary_emb_[sliding ? 1 : 0] = RotaryEmbedding(b, sliding ? spec.head_dim : spec.global_head_dim);
    }
    b.scope("model", [&] {
      if (spec.per_layer_input > 0) layer_inputs_.emplace(b, spec);
      return 0;
    });
    Tensor current_frequencies;
    for (const bool sliding : {false, true}) {
      if (has_layers(sliding)) current_frequencies = rotary_emb_[sliding ? 1 : 0].initialize(b);
    }
    current_frequencies.reset();
    if (spec.final_softcap) head_.logits = LogitsChange::kSoftcapped;
    build_head(b, embed_tokens_,
               {.width = spec.hidden_size, .vocabulary = spec.vocab_size, .tied = spec.tie_word_embeddings});
  }

 private:
  [[nodiscard]] bool has_layers(bool sliding) const {
    for (const bool each : sliding_layers_) {
      if (each == sliding) return true;
    }
    return false;
  }

  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = embed_tokens_(batch.input_ids);
    Tensor per_layer_inputs, per_layer_input;
    if (layer_inputs_) per_layer_inputs = layer_inputs_->forward(batch.input_ids, inputs_embeds);
    Tensor position_ids = position_ids_of(batch, inputs_embeds);
    const PastTokens past(cache);
    std::array<Tensor, 2> masks;
    masks[0] = create_causal_mask(run_, inputs_embeds, batch, past);
    masks[1] = create_causal_mask(run_, inputs_embeds, batch, past, sliding_window);
    Tensor hidden_states = inputs_embeds;
    std::array<RotaryPositions, 2> positions;  // a set of two words goes in either order, another in each process
    for (const std::size_t type : {0U, 1U}) {
      if (has_layers(type == 1)) positions[type] = rotary_emb_[type].forward(hidden_states, position_ids);
    }
    // A checkpoint keeps the dict among a layer's arguments, and a layer that runs again writes into it again.
    const auto shared = std::make_shared<SharedByType>();
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::size_t type = sliding_layers_[i] ? 1 : 0;
      if (layer_inputs_) per_layer_input = select(per_layer_inputs, 2);
      const Gemma4Layer& layer = layers_[i];
      KeptTensors positional = {hidden_states};
      if (layer_inputs_) positional.push_back(per_layer_input);
      const std::size_t rest = layer_inputs_ ? 2 : 1;
      hidden_states = checkpointed(
          run_, std::move(positional), {masks[type], positions[type].cos, positions[type].sin, position_ids},
          [&layer, shared, cache, rest](const KeptTensors& kept) {
            const Tensor layer_embedding = rest == 2 ? kept[1] : Tensor();
            return layer.forward(kept[0], layer_embedding, {kept[rest + 1], kept[rest + 2], kept[rest + 3]}, kept[rest],
                                 *shared, cache);
          },
          cache);
    }
    hidden_states = norm_(hidden_states);
    drop(per_layer_inputs, masks[0], masks[1], inputs_embeds, position_ids);
    for (RotaryPositions& each : positions) drop(each.cos, each.sin);
    return hidden_states;
  }

  std::vector<bool> sliding_layers_;
  Gemma4Embedding embed_tokens_;
  std::vector<Gemma4Layer> layers_;
  PowerRmsNorm norm_;
  std::array<RotaryEmbedding, 2> rotary_emb_;  // global, local
  std::optional<Gemma4LayerInputs> layer_inputs_;
};

}  // namespace

std::unique_ptr<Model> build_gemma4(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<Gemma4ForCausalLm>(architecture.as<Gemma4Spec>(), run, builder);
}

}  // namespace memcalc
