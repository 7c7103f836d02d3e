// Gemma 3n's text model: transformers models/gemma3n/modeling_gemma3n.py, Gemma3nForCausalLM.
// MIRRORS(transformers, "models/gemma3n/modeling_gemma3n.py", "5.17.0")
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/families/gemma/scaled_embedding.h"
#include "memcalc/families/gemma3n/spec.h"
#include "memcalc/models/attention.h"
#include "memcalc/models/decoder_model.h"
#include "memcalc/models/power_rms_norm.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/as_strided.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/in_place.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/variance.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

using Gemma3nRmsNorm = PowerRmsNorm;
using Gemma3nEmbedding = ScaledWordEmbedding<false>;

/// Gemma3nTextLaurelBlock
struct Gemma3nLaurel {
  Linear linear_left, linear_right;
  Gemma3nRmsNorm post_laurel_norm;

  Gemma3nLaurel(ModuleBuilder& b, const Gemma3nSpec& spec)
      : linear_left(b, "linear_left", spec.hidden_size, spec.laurel_rank, false),
        linear_right(b, "linear_right", spec.laurel_rank, spec.hidden_size, false),
        post_laurel_norm(b, "post_laurel_norm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const {
    Tensor laurel_hidden_states, normed_laurel_hidden_states;
    const Locals locals(laurel_hidden_states, normed_laurel_hidden_states);
    laurel_hidden_states = linear_left(hidden_states);
    laurel_hidden_states = linear_right(laurel_hidden_states);
    normed_laurel_hidden_states = post_laurel_norm(laurel_hidden_states);
    return hidden_states + normed_laurel_hidden_states;
  }
};

/// Gemma3nTextMLP
struct Gemma3nMlp {
  Linear gate_proj, up_proj, down_proj;
  std::string act_fn;
  bool sparse;

  Gemma3nMlp(ModuleBuilder& b, const Gemma3nSpec& spec, std::int64_t layer)
      : gate_proj(b, "gate_proj", spec.hidden_size, width(spec, layer), false),
        up_proj(b, "up_proj", spec.hidden_size, width(spec, layer), false),
        down_proj(b, "down_proj", width(spec, layer), spec.hidden_size, false),
        act_fn(spec.hidden_act),
        sparse(spec.sparse_layers[static_cast<std::size_t>(layer)]) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const {
    Tensor gate, activations, up;
    const Locals locals(gate, activations, up);
    gate = gate_proj(hidden_states);
    if (sparse) gate = gaussian_topk(gate);
    activations = activation_function(act_fn, gate);
    up = up_proj(hidden_states);
    const Tensor product = activations * up;
    return down_proj(product);
  }

 private:
  [[nodiscard]] static std::int64_t width(const Gemma3nSpec& spec, std::int64_t layer) {
    return spec.intermediate_sizes[static_cast<std::size_t>(layer)];
  }

  /// torch.distributions.normal.Normal(0, 1).icdf of a scalar on the card.
  [[nodiscard]] static Tensor quantile(const Tensor& value) {
    Tensor x = no_grad::subtract(no_grad::multiply(value));
    x = no_grad::absolute(std::move(x));  // torch.erfinv asks for the same
    x = no_grad::multiply(no_grad::multiply(std::move(x)));
    return no_grad::add(std::move(x));
  }

  /// _gaussian_topk
  [[nodiscard]] static Tensor gaussian_topk(const Tensor& inputs) {
    Tensor target_sparsity_tensor, std_multiplier, inputs_mean, inputs_std, cutoff_x;
    const Locals locals(target_sparsity_tensor, std_multiplier, inputs_mean, inputs_std, cutoff_x);
    target_sparsity_tensor = no_grad::from_list(inputs.tape(), {}, DType::kFloat32);
    std_multiplier = quantile(target_sparsity_tensor);
    std_multiplier = no_grad::to(std_multiplier, inputs.dtype());
    inputs_mean = mean_last(inputs);
    inputs_std = standard_deviation(inputs, 1U << (inputs.rank() - 1), true);
    cutoff_x = inputs_mean + inputs_std * std_multiplier;
    const Tensor above = inputs - cutoff_x;
    return relu(above);
  }
};

/// Gemma3nTextAltUp: hidden states [streams, batch, tokens, width], of which the layers work on the first
/// (altup_active_idx says which; they are alike).
struct Gemma3nAltUp {
  Tensor correct_output_scale;
  Linear correction_coefs, prediction_coefs, modality_router;
  Gemma3nRmsNorm router_norm;
  Tensor router_input_scale;
  std::int64_t inputs;
  bool clips;

  Gemma3nAltUp(ModuleBuilder& b, const Gemma3nSpec& spec)
      : correct_output_scale(b.parameter("correct_output_scale", {spec.hidden_size})),
        correction_coefs(b, "correction_coefs", spec.altup_num_inputs, spec.altup_num_inputs, false),
        prediction_coefs(b, "prediction_coefs", spec.altup_num_inputs, spec.altup_num_inputs * spec.altup_num_inputs,
                         false),
        modality_router(b, "modality_router", spec.hidden_size, spec.altup_num_inputs, false),
        router_norm(b, "router_norm", spec.hidden_size),
        router_input_scale(b.buffer({}, b.dtype)),
        inputs(spec.altup_num_inputs),
        clips(spec.altup_clips) {}

  [[nodiscard]] Tensor predict(const Tensor& hidden_states) const {
    Tensor modalities, all_coefs, predictions;
    const Locals locals(modalities, all_coefs, predictions);
    modalities = compute_router_modalities(select(hidden_states, 0));
    const Shape square{modalities.size(0), modalities.size(1), inputs, inputs};
    all_coefs = permute(reshape(prediction_coefs(modalities), square), {0, 1, 3, 2});
    predictions = matmul(permute(hidden_states, {1, 2, 3, 0}), all_coefs);
    predictions = added_to_view(predictions, permute(predictions, {3, 0, 1, 2}), hidden_states);
    return to_dtype(contiguous(predictions), hidden_states.dtype());
  }

  [[nodiscard]] Tensor correct(const Tensor& predictions, const Tensor& activated) const {
    Tensor modalities, innovation, weight, all_coefs, corrected;
    const Locals locals(modalities, innovation, weight, all_coefs, corrected);
    modalities = compute_router_modalities(activated);
    innovation = activated - select(predictions, 0);
    innovation = repeat(innovation, {inputs, 1, 1, 1});
    if (clips && activated.tape().modes.training) {
      weight = clamp(correction_coefs.weight);
      all_coefs = add_scalar(linear(modalities, weight, {}));
    } else {
      all_coefs = add_scalar(correction_coefs(modalities));
    }
    all_coefs = unsqueeze(permute(all_coefs, {2, 0, 1}), -1);
    corrected = innovation * all_coefs;
    corrected = add_in_place(corrected, predictions);
    return to_dtype(contiguous(corrected), activated.dtype());
  }

  [[nodiscard]] Tensor scale_corrected_output(const Tensor& corrected) const {
    const Tensor scaled = to_dtype(corrected, correct_output_scale.dtype()) * correct_output_scale;
    return to_dtype(scaled, corrected.dtype());
  }

 private:
  [[nodiscard]] Tensor compute_router_modalities(const Tensor& x) const {
    Tensor router_inputs, routed;
    const Locals locals(router_inputs, routed);
    router_inputs = router_norm(x) * router_input_scale;
    routed = modality_router(router_inputs);
    return to_dtype(tanh(to_dtype(routed, DType::kFloat32)), x.dtype());
  }

  /// view += source where `view` shows `base`: the view with its new history.
  [[nodiscard]] static Tensor added_to_view(const Tensor& base, const Tensor& view, const Tensor& source) {
    const Tensor now = change_view(base, view, source, InPlace::kAdd);
    return as_strided(now, view.shape(), view.strides());
  }
};

/// shared_kv_states: keys and values of the last layer of each type that has its own.
struct Gemma3nSharedStates {
  struct OfType {
    Tensor key, value;
  };
  std::array<OfType, 2> types;      // full, sliding
  std::vector<std::size_t> stored;  // in the dict's order

  Gemma3nSharedStates() = default;
  Gemma3nSharedStates(const Gemma3nSharedStates&) = delete;
  Gemma3nSharedStates& operator=(const Gemma3nSharedStates&) = delete;
  ~Gemma3nSharedStates() {
    for (const std::size_t type : stored) drop(types[type].value, types[type].key);
  }
  void store(std::size_t type, const Tensor& key, const Tensor& value) {
    types[type] = {key, value};
    if (std::find(stored.begin(), stored.end(), type) == stored.end()) stored.push_back(type);
  }
};

/// Gemma3nTextAttention
struct Gemma3nAttention {
  Linear q_proj;
  Gemma3nRmsNorm q_norm;
  std::optional<Linear> k_proj, v_proj;
  Gemma3nRmsNorm k_norm;
  Linear o_proj;
  std::int64_t head_dim;
  AttentionOptions options;
  bool sliding, is_shared, stores;

  Gemma3nAttention(ModuleBuilder& b, const Gemma3nSpec& spec, const RunSpec& run, std::int64_t layer)
      : head_dim(spec.head_dim),
        options(causal_attention(run, spec.attention_dropout)),
        sliding(spec.sliding_layers[static_cast<std::size_t>(layer)]),
        is_shared(spec.shares_keys(layer)),
        stores(!is_shared && layer == last_of_its_kind(spec, sliding)) {
    const std::int64_t queries = spec.num_attention_heads * head_dim, keys = spec.num_key_value_heads * head_dim;
    q_proj = Linear(b, "q_proj", spec.hidden_size, queries, spec.attention_bias);
    q_norm = Gemma3nRmsNorm(b, "q_norm", head_dim);
    if (!is_shared) {
      k_proj.emplace(b, "k_proj", spec.hidden_size, keys, spec.attention_bias);
      v_proj.emplace(b, "v_proj", spec.hidden_size, keys, spec.attention_bias);
      k_norm = Gemma3nRmsNorm(b, "k_norm", head_dim);
    }
    o_proj = Linear(b, "o_proj", queries, spec.hidden_size, spec.attention_bias);
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, Gemma3nSharedStates& shared, KeyValueCache* cache) const {
    const Shape shape{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    Tensor query_states, key_states, value_states;
    const Locals locals(query_states, key_states, value_states);
    query_states = view(q_proj(hidden_states), shape);
    query_states = q_norm(query_states);
    query_states = rotated(query_states, positions);
    query_states = transpose(query_states, 1, 2);
    const std::size_t type = sliding ? 1 : 0;
    if (is_shared) {
      key_states = shared.types[type].key;
      value_states = shared.types[type].value;
    } else {
      key_states = view((*k_proj)(hidden_states), shape);
      key_states = k_norm(key_states);
      key_states = rotated(key_states, positions);
      key_states = transpose(key_states, 1, 2);
      value_states = view((*v_proj)(hidden_states), shape);
      value_states = Gemma3nRmsNorm::without_scale(value_states);
      value_states = transpose(value_states, 1, 2);
      if (cache != nullptr) cache->update(key_states, value_states, sliding);
    }
    if (stores) shared.store(type, key_states, value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = o_proj(result.output);
    return result;
  }

 private:
  [[nodiscard]] static std::int64_t last_of_its_kind(const Gemma3nSpec& spec, bool sliding) {
    const bool shares = spec.shares_keys(spec.num_hidden_layers - 1);
    std::int64_t layer = spec.num_hidden_layers - (shares ? spec.kv_shared_layers : 0) - 1;
    while (layer >= 0 && spec.sliding_layers[static_cast<std::size_t>(layer)] != sliding) --layer;
    return layer;
  }
  /// apply_rotary_pos_emb(…, unsqueeze_dim=2)
  [[nodiscard]] static Tensor rotated(const Tensor& x, const RotaryPositions& positions) {
    const Tensor cos = unsqueeze(positions.cos, 2);
    const Tensor sin = unsqueeze(positions.sin, 2);
    return rotate(x, cos, sin);
  }
};

/// Gemma3nTextDecoderLayer
struct Gemma3nLayer {
  Gemma3nAttention self_attn;
  Gemma3nMlp mlp;
  Gemma3nRmsNorm input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;
  Gemma3nAltUp altup;
  Gemma3nLaurel laurel;
  Linear per_layer_input_gate, per_layer_projection;
  Gemma3nRmsNorm post_per_layer_input_norm;
  std::string act_fn;
  bool scales;

  Gemma3nLayer(ModuleBuilder& b, const Gemma3nSpec& spec, const RunSpec& run, std::int64_t layer)
      : self_attn(b.scope("self_attn", [&] { return Gemma3nAttention(b, spec, run, layer); })),
        mlp(b.scope("mlp", [&] { return Gemma3nMlp(b, spec, layer); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        pre_feedforward_layernorm(b, "pre_feedforward_layernorm", spec.hidden_size),
        post_feedforward_layernorm(b, "post_feedforward_layernorm", spec.hidden_size),
        altup(b.scope("altup", [&] { return Gemma3nAltUp(b, spec); })),
        laurel(b.scope("laurel", [&] { return Gemma3nLaurel(b, spec); })),
        per_layer_input_gate(b, "per_layer_input_gate", spec.hidden_size, spec.per_layer_input, false),
        per_layer_projection(b, "per_layer_projection", spec.per_layer_input, spec.hidden_size, false),
        post_per_layer_input_norm(b, "post_per_layer_input_norm", spec.hidden_size),
        act_fn(spec.hidden_act),
        scales(spec.altup_correct_scale) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& per_layer_input,
                               const RotaryPositions& positions, const Tensor& mask, Gemma3nSharedStates& shared,
                               KeyValueCache* cache) const {
    Tensor predictions, active_prediction, active_prediction_normed, laurel_output, attn, others, attn_gated,
        attn_laurel, attn_norm, attn_ffw, attn_ffw_norm, attn_ffw_laurel_gated, first_prediction;
    const Locals locals(predictions, active_prediction, active_prediction_normed, laurel_output, attn, others,
                        attn_gated, attn_laurel, attn_norm, attn_ffw, attn_ffw_norm, attn_ffw_laurel_gated,
                        first_prediction);
    predictions = altup.predict(hidden_states);
    active_prediction = select(predictions, 0);
    active_prediction_normed = input_layernorm(active_prediction);
    laurel_output = laurel.forward(active_prediction_normed);
    {
      AttentionResult attention = self_attn.forward(active_prediction_normed, positions, mask, shared, cache);
      attn = std::move(attention.output);
      others = std::move(attention.weights);
    }
    attn = post_attention_layernorm(attn);
    attn_gated = active_prediction + attn;
    attn_laurel = divide_scalar(attn_gated + laurel_output);
    attn_norm = pre_feedforward_layernorm(attn_laurel);
    attn_ffw = mlp.forward(attn_norm);
    attn_ffw_norm = post_feedforward_layernorm(attn_ffw);
    attn_ffw_laurel_gated = attn_laurel + attn_ffw_norm;
    Tensor corrected_predictions = altup.correct(predictions, attn_ffw_laurel_gated);
    first_prediction = clone(select(corrected_predictions, 0));
    if (scales) first_prediction = altup.scale_corrected_output(first_prediction);
    first_prediction = per_layer_input_gate(first_prediction);
    first_prediction = activation_function(act_fn, first_prediction);
    first_prediction = first_prediction * per_layer_input;
    first_prediction = per_layer_projection(first_prediction);
    first_prediction = post_per_layer_input_norm(first_prediction);
    return with_others(std::move(corrected_predictions), first_prediction);
  }

 private:
  /// corrected_predictions[1:] += first_prediction: added to a view, which is then copied onto itself.
  [[nodiscard]] static Tensor with_others(Tensor corrected_predictions, const Tensor& first_prediction) {
    const Tensor part = [&] {
      const NoGrad no_grad(corrected_predictions.tape().modes);  // the view is part of CopySlices
      return slice(corrected_predictions, 0, 1, corrected_predictions.size(0) - 1);
    }();
    corrected_predictions = change_view(corrected_predictions, part, first_prediction, InPlace::kAdd);
    const Tensor again = as_strided(corrected_predictions, part.shape(), part.strides());
    return copy_into_view(corrected_predictions, part, again);
  }
};

/// Of Gemma3nTextModel: an embedding of each layer, packed in one.
struct Gemma3nLayerInputs {
  std::int64_t layers, width;
  Gemma3nEmbedding embed_tokens_per_layer;
  Linear per_layer_model_projection;
  Gemma3nRmsNorm per_layer_projection_norm;
  Tensor per_layer_projection_scale, per_layer_input_scale;

  Gemma3nLayerInputs(ModuleBuilder& b, const Gemma3nSpec& spec)
      : layers(spec.num_hidden_layers),
        width(spec.per_layer_input),
        embed_tokens_per_layer(b, "embed_tokens_per_layer", spec.per_layer_vocabulary, layers * width),
        per_layer_model_projection(b, "per_layer_model_projection", spec.hidden_size, layers * width, false),
        per_layer_projection_norm(b, "per_layer_projection_norm", width) {
    embed_tokens_per_layer.product_requires_grad = false;  // enable_input_require_grads hooks the other embedding
  }

  [[nodiscard]] Tensor get_per_layer_inputs(const Tensor& input_ids) const {
    return reshape(embed_tokens_per_layer(input_ids), {input_ids.size(0), input_ids.size(1), layers, width});
  }

  [[nodiscard]] Tensor project_per_layer_inputs(const Tensor& inputs_embeds, const Tensor& per_layer_inputs) const {
    Tensor per_layer_projection;
    const Locals locals(per_layer_projection);
    per_layer_projection = per_layer_model_projection(inputs_embeds);
    per_layer_projection =
        multiply_in_place(per_layer_projection, to_dtype(per_layer_projection_scale, inputs_embeds.dtype()));
    per_layer_projection = reshape(per_layer_projection, per_layer_inputs.shape());
    per_layer_projection = per_layer_projection_norm(per_layer_projection);
    const Tensor sum = per_layer_projection + per_layer_inputs;
    return sum * to_dtype(per_layer_input_scale, inputs_embeds.dtype());
  }
};

class Gemma3nForCausalLm final : public DecoderModel {
 public:
  Gemma3nForCausalLm(const Gemma3nSpec& spec, const RunSpec& run, ModuleBuilder& b)
      : DecoderModel(run, spec.hidden_act), sliding_layers_(spec.sliding_layers) {
    if (run.task == Task::kSequenceClassification) throw refusal(rules::kNoClassifier);
    sliding_window = spec.sliding_window;
    const std::int64_t width = spec.hidden_size;
    layer_paths.emplace();  // its projections stand in lists, too
    for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
      layer_paths->push_back("model.layers." + std::to_string(i));
    }
    b.scope("model", [&] {
      embed_tokens_ = Gemma3nEmbedding(b, "embed_tokens", spec.vocab_size, width);
      for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
        layers_.push_back(b.scope("layers." + std::to_string(i), [&] { return Gemma3nLayer(b, spec, run, i); }));
      }
      norm_ = Gemma3nRmsNorm(b, "norm", width);
      return 0;
    });
    for (const bool sliding : {false, true}) {
      if (has_layers(sliding)) rotary_emb_[sliding ? 1 : 0] = RotaryEmbedding(b, spec.head_dim);
    }
    b.scope("model", [&] {
      layer_inputs_.emplace(b, spec);
      for (auto& [name, projections] : {std::pair{"altup_projections.", &altup_projections_},
                                        std::pair{"altup_unembed_projections.", &altup_unembed_projections_}}) {
        for (std::int64_t i = 1; i < spec.altup_num_inputs; ++i) {
          projections->emplace_back(b, name + std::to_string(i - 1), width, width, false);
        }
      }
      return 0;
    });
    layer_inputs_->per_layer_projection_scale = b.buffer({}, b.dtype);
    layer_inputs_->per_layer_input_scale =
        b.computed_buffer(no_grad::reciprocal(no_grad::full(b.tape, {}, b.dtype)));  // torch.rsqrt
    b.tape.memory.set_category(layer_inputs_->per_layer_input_scale.block(), Category::kWeights);
    Tensor current_frequencies;
    for (const bool sliding : {false, true}) {
      if (has_layers(sliding)) current_frequencies = rotary_emb_[sliding ? 1 : 0].initialize(b);
    }
    current_frequencies.reset();
    if (spec.final_softcap) head_.logits = LogitsChange::kSoftcapped;
    build_head(b, embed_tokens_, {.width = width, .vocabulary = spec.vocab_size, .tied = spec.tie_word_embeddings});
  }

 private:
  /// What projected streams are brought to: the magnitude of the first one.
  struct Magnitudes {
    Tensor target, altup_proj, current_hidden_state, new_magnitude;
  };

  [[nodiscard]] bool has_layers(bool sliding) const {
    for (const bool each : sliding_layers_) {
      if (each == sliding) return true;
    }
    return false;
  }

  /// torch.mean(x ** 2, dim=-1, keepdim=True) ** 0.5
  [[nodiscard]] static Tensor magnitude(const Tensor& x) { return power(mean_last(power(x))); }

  /// One more stream out of `x`: a projection of it that is as large as the first.
  static void project(const Linear& projection, const Tensor& x, DType dtype, Magnitudes& of) {
    of.altup_proj = projection(x);
    of.current_hidden_state = to_dtype(of.altup_proj, dtype);
    of.new_magnitude = mean_last(power(of.current_hidden_state));
    {
      const Tensor epsilon_tensor = no_grad::from_list(x.tape(), {}, DType::kFloat32);
      const Tensor larger = extremum(aten::kMaximum, of.new_magnitude, epsilon_tensor);
      of.new_magnitude = square_root(larger);
    }
    const Tensor scaled = of.current_hidden_state * of.target;
    of.current_hidden_state = divide_both(scaled, of.new_magnitude);
  }

  /// torch.stack(streams)
  [[nodiscard]] static Tensor stacked(const std::vector<Tensor>& streams) {
    std::vector<Tensor> parts;
    for (const Tensor& each : streams) parts.push_back(unsqueeze(each, 0));
    return parts.size() == 2 ? cat(parts[0], parts[1], 0) : concatenate(parts, 0);
  }

  /// A Python list lets go of its last element first.
  static void clear(std::vector<Tensor>& list) {
    while (!list.empty()) list.pop_back();
  }

  [[nodiscard]] Tensor decode(const Batch& batch, KeyValueCache* cache) const override {
    Tensor inputs_embeds = embed_tokens_(batch.input_ids);
    Tensor per_layer_inputs = layer_inputs_->get_per_layer_inputs(batch.input_ids);
    per_layer_inputs = layer_inputs_->project_per_layer_inputs(inputs_embeds, per_layer_inputs);
    Tensor position_ids = position_ids_of(batch, inputs_embeds);
    const PastTokens past(cache);
    std::array<Tensor, 2> masks;
    masks[0] = create_causal_mask(run_, inputs_embeds, batch, past);
    masks[1] = create_causal_mask(run_, inputs_embeds, batch, past, sliding_window);
    Magnitudes of;
    of.target = magnitude(inputs_embeds);
    std::vector<Tensor> temp_hidden_states = {inputs_embeds};
    for (const Linear& projection : altup_projections_) {
      project(projection, inputs_embeds, inputs_embeds.dtype(), of);
      temp_hidden_states.push_back(of.current_hidden_state);
    }
    Tensor hidden_states = stacked(temp_hidden_states);
    std::array<RotaryPositions, 2> positions;  // a set of two words goes in either order, another in each process
    for (const std::size_t type : {0U, 1U}) {
      if (has_layers(type == 1)) positions[type] = rotary_emb_[type].forward(hidden_states, position_ids);
    }
    // A checkpoint keeps the dict among a layer's arguments, and a layer that runs again writes into it again.
    auto shared = std::make_shared<Gemma3nSharedStates>();
    Tensor causal_mask, per_layer_input;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const std::size_t type = sliding_layers_[i] ? 1 : 0;
      causal_mask = masks[type];
      per_layer_input = select(per_layer_inputs, 2);
      const Gemma3nLayer& layer = layers_[i];
      hidden_states = checkpointed(
          run_, {hidden_states, positions[type].cos, positions[type].sin, per_layer_input}, {causal_mask, position_ids},
          [&layer, shared, cache](const KeptTensors& kept) {
            return layer.forward(kept[0], kept[3], {kept[1], kept[2], kept[5], {}}, kept[4], *shared, cache);
          },
          cache);
    }
    of.target = magnitude(select(hidden_states, 0));
    Tensor altup_proj = std::move(of.altup_proj);  // the projections behind the layers are another variable
    clear(temp_hidden_states);
    temp_hidden_states.push_back(select(hidden_states, 0));
    for (const Linear& projection : altup_unembed_projections_) {
      const Tensor stream = select(hidden_states, 0);
      project(projection, stream, inputs_embeds.dtype(), of);
      temp_hidden_states.push_back(of.current_hidden_state);
    }
    hidden_states = stacked(temp_hidden_states);
    hidden_states = mean_over(hidden_states, 0);
    hidden_states = norm_(hidden_states);
    drop(per_layer_inputs, masks[0], masks[1], position_ids, inputs_embeds, of.target);
    clear(temp_hidden_states);
    drop(altup_proj, of.current_hidden_state, of.new_magnitude);
    for (RotaryPositions& each : positions) drop(each.cos, each.sin);
    shared.reset();
    drop(causal_mask, per_layer_input, of.altup_proj);
    return hidden_states;
  }

  std::vector<bool> sliding_layers_;
  Gemma3nEmbedding embed_tokens_;
  std::vector<Gemma3nLayer> layers_;
  Gemma3nRmsNorm norm_;
  std::array<RotaryEmbedding, 2> rotary_emb_;  // full, sliding
  std::optional<Gemma3nLayerInputs> layer_inputs_;
  std::vector<Linear> altup_projections_, altup_unembed_projections_;
};

}  // namespace

std::unique_ptr<Model> build_gemma3n(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Gemma3nSpec>();
  if (run.trains() && spec.altup_clips && run.fine_tuning.quantization != Quantization::kNone) {
    throw Error(
        ErrorCode::kUnsupported,
        "quantize: Gemma 3n's AltUp clamps the weights of its coefficients (altup_coef_clip), which packed ones "
        "do not allow; accepted: --infer, 16-bit weights");
  }
  return std::make_unique<Gemma3nForCausalLm>(spec, run, builder);
}

}  // namespace memcalc
