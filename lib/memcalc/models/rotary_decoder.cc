// MIRRORS(transformers, "modeling_rope_utils.py", "5.17.0")
#include "memcalc/models/rotary_decoder.h"

#include <tuple>

#include "memcalc/models/full_causal_mask.h"
#include "memcalc/models/image_text.h"
#include "memcalc/models/interleaved_rotary.h"
#include "memcalc/models/linear_states.h"
#include "memcalc/models/span_head.h"
#include "memcalc/models/unsloth.h"
#include "memcalc/symbolic/ops/dtensor.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/liger.h"
#include "memcalc/symbolic/ops/unsloth.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// theta ** (range / D)
Tensor powers(Tensor range) { return no_grad::power_of_number(no_grad::divide(std::move(range))); }

/// number / x
Tensor inverse(const Tensor& x) { return no_grad::multiply(no_grad::reciprocal(x)); }

/// 1 / theta ** (arange(0, D, 2) / D), as compute_default_rope_parameters takes its temporaries.
Tensor default_rope_parameters(Tape& tape, std::int64_t half) {
  const bool from_int = tape.behaviors.inverse_frequencies_from_int;
  Tensor range = no_grad::arange(tape, half, from_int ? DType::kInt64 : DType::kFloat32);
  const Tensor pos_freqs = powers(no_grad::to(std::move(range), DType::kFloat32));
  return inverse(pos_freqs);
}

/// modeling_rope_utils.py, _compute_yarn_parameters.
Tensor yarn_rope_parameters(Tape& tape, std::int64_t half) {
  Tensor pos_freqs = powers(no_grad::to(no_grad::arange(tape, half), DType::kFloat32));
  Tensor extrapolation = inverse(pos_freqs);
  Tensor interpolation;
  {
    const Tensor scaled = no_grad::multiply(pos_freqs);
    interpolation = inverse(scaled);
  }
  Tensor ramp = no_grad::clamp(no_grad::divide(no_grad::subtract(no_grad::arange(tape, half, DType::kFloat32))));
  Tensor extrapolation_factor = no_grad::subtract(std::move(ramp));
  Tensor interpolated = no_grad::multiply(interpolation, no_grad::subtract(extrapolation_factor));
  Tensor extrapolated = no_grad::multiply(extrapolation, extrapolation_factor);
  Tensor result = no_grad::add(interpolated, extrapolated);
  drop(interpolated, extrapolated, pos_freqs, extrapolation, interpolation, extrapolation_factor);
  return result;
}

Tensor rope_parameters(Tape& tape, std::int64_t half, bool yarn) {
  Tensor inverse = yarn ? yarn_rope_parameters(tape, half) : default_rope_parameters(tape, half);
  tape.memory.set_category(inverse.block(), Category::kWeights);
  return inverse;
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(ModuleBuilder& b, std::int64_t rotary_dim, bool yarn, bool one)
    : inverse_frequencies(b.computed_buffer(rope_parameters(b.tape, rotary_dim / 2, yarn))),
      original_inverse_frequencies(
          !one && b.tape.behaviors.two_inverse_frequencies ? b.buffer({rotary_dim / 2}, DType::kFloat32) : Tensor()),
      yarn(yarn) {}

Tensor RotaryEmbedding::initialize(ModuleBuilder& b) const {
  if (!original_inverse_frequencies.defined()) return {};  // 4.57.6 makes them once
  return rope_parameters(b.tape, inverse_frequencies.size(0), yarn);
}

RotaryPositions RotaryEmbedding::forward(const Tensor& x, const Tensor& position_ids,
                                         std::optional<DType> dtype) const {
  RotaryPositions positions;
  std::tie(positions.cos, positions.sin) = rotary_embedding(x, inverse_frequencies, position_ids, dtype);
  return positions;
}

void apply_partial_rotary(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const Tensor cos = unsqueeze(positions.cos, 1);
  const Tensor sin = unsqueeze(positions.sin, 1);
  const std::int64_t rotary_dim = cos.size(-1);
  const std::int64_t rest = query.size(-1) - rotary_dim;
  Tensor q_rot = slice(query, -1, 0, rotary_dim), q_pass = slice(query, -1, rotary_dim, rest);
  Tensor k_rot = slice(key, -1, 0, rotary_dim), k_pass = slice(key, -1, rotary_dim, rest);
  Tensor q_embed = rotate(q_rot, cos, sin);
  Tensor k_embed = rotate(k_rot, cos, sin);
  q_embed = cat(q_embed, q_pass, -1);
  k_embed = cat(k_embed, k_pass, -1);
  drop(q_rot, q_pass, k_rot, k_pass);  // the function returns before its caller lets go of query and key
  query = std::move(q_embed);
  key = std::move(k_embed);
}

namespace {

/// cos[..., : cos.shape[-1] // 2].repeat_interleave(2, dim=-1) of positions.unsqueeze(1)
Tensor first_half_twice(const Tensor& positions) {
  return each_twice(slice(unsqueeze(positions, 1), -1, 0, positions.size(-1) / 2));
}

/// (x.float() * cos) + (rotate_half(x).float() * sin)
Tensor rotated_neighbours_in_float32(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor scaled = to_dtype(x, DType::kFloat32) * cos;
  Tensor rotated = to_dtype(rotate_every_two(x), DType::kFloat32);
  Tensor product = std::move(rotated) * sin;
  return std::move(scaled) + std::move(product);
}

}  // namespace

Tensor rotated_neighbours(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor scaled = x * cos;
  Tensor rotated = rotate_every_two(x);
  Tensor product = std::move(rotated) * sin;
  return std::move(scaled) + std::move(product);
}

void rotate_neighbours(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  Tensor cos = first_half_twice(positions.cos);
  Tensor sin = first_half_twice(positions.sin);
  const std::int64_t rotary_dim = cos.size(-1);
  const std::int64_t rest = query.size(-1) - rotary_dim;
  Tensor q_rot = slice(query, -1, 0, rotary_dim), q_pass = slice(query, -1, rotary_dim, rest);
  Tensor k_rot = slice(key, -1, 0, rotary_dim), k_pass = slice(key, -1, rotary_dim, rest);
  Tensor q_embed = rotated_neighbours(q_rot, cos, sin);
  Tensor k_embed = rotated_neighbours(k_rot, cos, sin);
  q_embed = cat(q_embed, q_pass, -1);
  k_embed = cat(k_embed, k_pass, -1);
  drop(cos, sin, q_rot, q_pass, k_rot, k_pass);
  query = std::move(q_embed);
  key = std::move(k_embed);
}

void rotate_neighbours_in_float32(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const DType original_dtype = query.dtype();
  Tensor cos = first_half_twice(positions.cos);
  Tensor sin = first_half_twice(positions.sin);
  Tensor q_embed = rotated_neighbours_in_float32(query, cos, sin);
  Tensor k_embed = rotated_neighbours_in_float32(key, cos, sin);
  Tensor q_cast = to_dtype(q_embed, original_dtype);
  Tensor k_cast = to_dtype(k_embed, original_dtype);
  drop(cos, sin, q_embed, k_embed);
  query = std::move(q_cast);
  key = std::move(k_cast);
}

void rotate_in_float32(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const DType q_type = query.dtype(), k_type = key.dtype();
  const Tensor cos = unsqueeze(positions.cos, 1);
  const Tensor sin = unsqueeze(positions.sin, 1);
  Tensor q_embed = rotate(query, cos, sin);
  Tensor k_embed = rotate(key, cos, sin);
  Tensor q_cast = to_dtype(q_embed, q_type);
  Tensor k_cast = to_dtype(k_embed, k_type);
  drop(q_embed, k_embed);
  query = std::move(q_cast);
  key = std::move(k_cast);
}

HeadProjections::HeadProjections(ModuleBuilder& b, const RotaryDecoderSpec& spec, const AttentionOptions& options,
                                 bool sliding, bool qkv_bias, bool output_bias)
    : q_proj(b, "q_proj", spec.hidden_size, checked_multiply(spec.num_attention_heads, spec.head_dim), qkv_bias),
      k_proj(b, "k_proj", spec.hidden_size, checked_multiply(spec.num_key_value_heads, spec.head_dim), qkv_bias),
      v_proj(b, "v_proj", spec.hidden_size, checked_multiply(spec.num_key_value_heads, spec.head_dim), qkv_bias),
      o_proj(b, "o_proj", checked_multiply(spec.num_attention_heads, spec.head_dim), spec.hidden_size, output_bias),
      head_dim(spec.head_dim),
      options(options),
      sliding(sliding),
      liger(b.fine_tuning.liger),
      unsloth(b.fine_tuning.unsloth) {}

void HeadProjections::rotate_heads(Tensor& query, Tensor& key, const RotaryPositions& positions) const {
  if (!rotates) return;
  if (rotation != nullptr) return rotation(query, key, positions);
  if (!liger) return apply_rotary(query, key, positions.cos, positions.sin);
  query = liger_rotate(query, positions.cos, positions.sin);
  key = liger_rotate(key, positions.cos, positions.sin);
}

Tensor HeadProjections::heads(const Linear& projection, const Tensor& hidden_states) const {
  return view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim});
}

AttentionResult HeadProjections::attend(const Tensor& hidden_states, Tensor& query, Tensor& key, Tensor& value,
                                        const Tensor& mask, KeyValueCache* cache) const {
  return attend(hidden_states, query, key, value, cache, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return attention_interface(q, k, v, mask, options);
  });
}

Tensor flatten_heads(const Tensor& attn_output, const Tensor& hidden_states) {
  return contiguous(reshape(attn_output, {hidden_states.size(0), hidden_states.size(1), -1}));
}

AttentionResult RotaryAttention::forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                         const Tensor& mask, KeyValueCache* cache) const {
  if (unsloth) return forward_by_unsloth(hidden_states, false);
  Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
  Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
  Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
  rotate_heads(query_states, key_states, positions);
  return attend(hidden_states, query_states, key_states, value_states, mask, cache);
}

NormedRotaryAttention::NormedRotaryAttention(ModuleBuilder& b, const RotaryDecoderSpec& spec, const RunSpec& run,
                                             bool sliding)
    : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                      spec.attention_bias),
      q_norm(b, "q_norm", spec.head_dim),
      k_norm(b, "k_norm", spec.head_dim) {}

AttentionResult NormedRotaryAttention::forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                               const Tensor& mask, KeyValueCache* cache) const {
  if (unsloth) return forward_by_unsloth(hidden_states, true);
  Tensor query_states = transpose(q_norm(heads(q_proj, hidden_states)), 1, 2);
  Tensor key_states = transpose(k_norm(heads(k_proj, hidden_states)), 1, 2);
  Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
  rotate_heads(query_states, key_states, positions);
  return attend(hidden_states, query_states, key_states, value_states, mask, cache);
}

GatedMlp::GatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec, bool bias)
    : GatedMlp(b, spec, spec.intermediate_size, bias) {}

GatedMlp::GatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec, std::int64_t intermediate_size, bool bias)
    : gate_proj(b, "gate_proj", spec.hidden_size, intermediate_size, bias),
      up_proj(b, "up_proj", spec.hidden_size, intermediate_size, bias),
      down_proj(b, "down_proj", intermediate_size, spec.hidden_size, bias),
      act_fn(spec.hidden_act),
      liger(b.fine_tuning.liger),
      unsloth(b.fine_tuning.unsloth) {}

Tensor GatedMlp::forward(const Tensor& x) const {
  if (unsloth)
    return unsloth_mlp(x, {unsloth_product(gate_proj), unsloth_product(up_proj), unsloth_product(down_proj)});
  if (liger) {
    Tensor gate = gate_proj(x);
    Tensor up = up_proj(x);
    return down_proj(liger_silu_multiply(std::move(gate), std::move(up)));
  }
  Tensor activated;
  {
    const Tensor gate = gate_proj(x);
    activated = activation_function(act_fn, gate);
  }
  Tensor product = std::move(activated) * up_proj(x);
  Tensor output = down_proj(product);
  if (output_dropout == 0) return output;
  product.reset();
  return dropout(output, output_dropout);
}

FusedGatedMlp::FusedGatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec)
    : gate_up_proj(b, "gate_up_proj", spec.hidden_size, 2 * spec.intermediate_size, false),
      down_proj(b, "down_proj", spec.intermediate_size, spec.hidden_size, false),
      activation_fn(spec.hidden_act) {}

Tensor FusedGatedMlp::forward(const Tensor& hidden_states) const {
  Tensor up_states = gate_up_proj(hidden_states);
  std::vector<Tensor> parts = split(up_states, -1, 2);
  Tensor gate = std::move(parts[0]);
  up_states = std::move(parts[1]);
  up_states = up_states * activation_function(activation_fn, gate);
  Tensor result = down_proj(up_states);
  drop(up_states, gate);
  return result;
}

const Tensor& input_of(const Tensor& x, Tensor& gathered) {
  const std::optional<SequenceSplit>& split = x.tape().modes.sequence_split;
  if (!split) return x;
  gathered = gather_for_products(x, 1, split->ranks);
  return gathered;
}

Linear language_model_head(ModuleBuilder& b, const Embedding& embedding, bool tied, std::int64_t in,
                           std::int64_t vocabulary, bool bias) {
  if (!tied) return Linear(b, "lm_head", in, vocabulary, bias);
  Linear head;
  b.until_tied(embedding.weight.shape()).reset();
  head.weight = embedding.weight;
  if (bias) head.bias = b.parameter("lm_head.bias", {vocabulary}, false);
  return head;
}

AttentionOptions causal_attention(const RunSpec& run, double attention_dropout) {
  return {.implementation = run.attention,
          .dropout = dropout_probability(run, attention_dropout),
          .causal = true,
          .softmax_in_float32 = true};
}

MaskPlan MaskPlan::single(const RotaryDecoderSpec& spec) {
  MaskPlan plan;
  plan.sliding = spec.sliding_window.has_value();
  plan.full = !plan.sliding;
  return plan;
}

MaskPlan MaskPlan::mapped(const std::vector<bool>& sliding_layers) {
  const bool slides = std::find(sliding_layers.begin(), sliding_layers.end(), true) != sliding_layers.end();
  return {.sliding = slides, .mapping = true, .sliding_layers = sliding_layers};
}

/// Dies in the order of module.parameters().
struct RotaryDecoder::Rest {
  std::vector<Parameter> parameters;
  Layers layers;

  Rest() = default;
  Rest(const Rest&) = delete;
  Rest& operator=(const Rest&) = delete;
  ~Rest() {
    layers.clear();
    for (Parameter& each : parameters) each.tensor.reset();
  }
};

RotaryDecoder::RotaryDecoder(const RotaryDecoderSpec& spec, const RunSpec& run, ModuleBuilder& b,
                             const DecoderPlan& plan)
    : run_(run), max_position_embeddings_(spec.max_position_embeddings), plan_(plan) {
  if (!spec.hidden_act.empty()) check_activation_function(spec.hidden_act);  // else the family has its own
  if (run.task == Task::kSequenceClassification && !plan.has_classifier) throw refusal(rules::kNoClassifier);
  if (plan.masks.has_recurrent() && run.trains() && run.compiles()) throw refusal(rules::kLinearLayersCompiled);
  loss_shifts_labels = run.task == Task::kCausalLm;
  sliding_window = spec.sliding_window;
  const auto build_decoder = [&] {
    embed_tokens_ = plan.embedding(b);
    for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) {
      const bool sliding = plan.masks.is_sliding(i);
      layers_.push_back(
          b.scope(std::string(plan.layers) + "." + std::to_string(i), [&] { return plan.layer(b, i, sliding); }));
      has_full_layers_ |= !sliding;
      has_sliding_layers_ |= sliding;
    }
    norm_ = plan.norm(b);
    return 0;
  };
  b.scope(plan.backbone, [&] {
    if (plan.images == nullptr) return build_decoder();
    plan.images->build(b);
    accepts_loss_kwargs = plan.images->accepts_loss_kwargs();
    inputs = plan.images->inputs();
    images = plan.images.get();
    return b.scope(plan.images->scope(), build_decoder);
  });
  for (const bool sliding : {false, true}) {
    if (has_rotary(sliding))
      rotary_emb_[sliding ? 1 : 0] =
          RotaryEmbedding(b, plan.rotary_dim, spec.yarn_positions && !sliding, plan.one_inverse_frequency);
  }
  Tensor current_frequencies;
  for (const bool sliding : {false, true}) {
    if (has_rotary(sliding)) current_frequencies = rotary_emb_[sliding ? 1 : 0].initialize(b);
  }
  current_frequencies.reset();
  if (plan.late_buffers != nullptr) plan.late_buffers(b);
  plan_.late_buffers = nullptr;
  plan_.embedding = nullptr;
  plan_.layer = nullptr;
  plan_.norm = nullptr;
  using Score = SequenceClassifier::Score;
  classifier_ = sequence_classifier(b, run, spec.hidden_size, spec.num_labels,
                                    plan.scores_by_two_layers ? Score::kTwoLayers : Score::kOneLayer);
  if (classifier_) return;
  if (run.task == Task::kQuestionAnswering) {
    lm_head_ = span_head(b, spec.hidden_size);
    return;
  }
  Embedding tied;
  tied.weight = embed_tokens_.weight;
  lm_head_ = language_model_head(b, tied, spec.tie_word_embeddings, spec.hidden_size, spec.vocab_size);
}

namespace {

/// lce_forward, skip_logits: in training, and in Trainer.prediction_step() where predictions are of the loss alone
/// (of 5.17; releases before 5.13 make the logits in every evaluation).
bool skips_logits(const RunSpec& run, const Tape& tape) {
  if (tape.modes.training || !run.trains()) return true;
  return !(run.training().evaluation && run.training().evaluation->keeps_logits);
}

}  // namespace

ModelOutput RotaryDecoder::forward(const Batch& batch) {
  ModelOutput output;
  KeyValueCache* cache = caches(batch) ? self_attention_cache_of(run_, batch, output) : nullptr;
  std::vector<Tensor> router_logits;  // of mixtures of experts, which the backbone's output holds until the end
  Tensor hidden_states;
  {
    const bool in_trainer = run_.trains() && run_.training().loop == Loop::kTrainer;
    const bool records = batch.fused_head != nullptr ? batch.fused_head->balances_experts
                                                     : in_trainer && run_.training().balances_experts;
    const Scoped recording(batch.input_ids.tape().modes.router_logits, records ? &router_logits : nullptr);
    hidden_states = decode(batch, cache, output);
  }
  if (run_.task == Task::kQuestionAnswering) {
    predict_spans(lm_head_, hidden_states, batch, output, SpanLoss::kByFunction);
    return output;
  }
  predict(classifier_, lm_head_, hidden_states, batch, output,
          {.logits = plan_.logits,
           .liger = run_.fine_tuning.liger && skips_logits(run_, batch.input_ids.tape()),
           .unsloth = run_.fine_tuning.unsloth,
           .router_logits = &router_logits,
           .experts_per_token = plan_.experts_per_token});
  for (Tensor& each : router_logits) each.reset();
  if (batch.fused_head != nullptr && plan_.images != nullptr)
    output.others.clear();  // _fused_forward hands on no features
  return output;
}

std::shared_ptr<void> RotaryDecoder::keep_stages(const std::vector<ModelStage>& stages) {
  if (plan_.images != nullptr || plan_.rotary_by_layer_type || plan_.position_ids_first ||
      plan_.masks.has_recurrent() || plan_.masks.sliding || plan_.logits != LogitsChange::kNone || classifier_ ||
      run_.task == Task::kQuestionAnswering) {
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
Tensor RotaryDecoder::forward_stage(const ModelStage& stage, const Tensor& x) {
  Tensor hidden_states = stage.embeds ? embed_tokens_.look_up(x) : x;
  Tensor position_ids = unsqueeze(no_grad::arange(hidden_states.tape(), hidden_states.size(1)), 0);
  RotaryPositions positions = plan_.rotate(rotary_emb_[0], hidden_states, position_ids, std::nullopt);
  for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.layers; ++i) {
    const DecoderLayer& layer = *layers_[index_of(stage, i)];
    const KeptTensors keywords = {Tensor(), positions.cos, positions.sin, position_ids};
    hidden_states = checkpointed(run_, {hidden_states}, keywords, [&layer](const KeptTensors& kept) {
      return layer.forward(kept[0], {kept[2], kept[3], kept[4], {}}, kept[1], nullptr);
    });
  }
  if (stage.predicts) {
    const Tensor normed = norm_(hidden_states);
    hidden_states = lm_head_(normed);
  }
  drop(position_ids, positions.cos, positions.sin);
  return hidden_states;
}

/// Where a layer of a stage that was kept stands.
std::size_t RotaryDecoder::index_of(const ModelStage& stage, std::int64_t layer) const {
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].first_layer == stage.first_layer) return static_cast<std::size_t>(layer + first_layers_[i]);
  }
  return static_cast<std::size_t>(layer);
}

bool RotaryDecoder::has_rotary(bool sliding) const {
  if (plan_.rotary_dim == 0) return false;
  if (plan_.rotary_by_layer_type) return sliding ? has_sliding_layers_ : has_full_layers_;
  return !sliding;
}

bool RotaryDecoder::caches(const Batch& batch) const {
  if (batch.fused_head != nullptr) return false;  // _fused_forward: kwargs["use_cache"] = False
  if (!plan_.trained_without_cache_once) return true;
  const Tape& tape = batch.input_ids.tape();
  return !tape.modes.training || tape.behaviors.gemma_caches_in_training;
}

Tensor RotaryDecoder::decode(const Batch& batch, KeyValueCache* cache, ModelOutput& output) const {
  if (run_.fine_tuning.unsloth) return decode_by_unsloth(batch);
  if (plan_.images == nullptr) {
    return decode_embedded(batch, cache, {.inputs_embeds = embed_tokens_.look_up(batch.input_ids)});
  }
  return plan_.images->forward(
      batch, embed_tokens_.look_up, [&](TextInputs inputs) { return decode_embedded(batch, cache, std::move(inputs)); },
      output);
}

/// What layers hand on, of one forward pass. A recomputation finds it closed: what it makes is nobody's.
class HandedOn {
 public:
  [[nodiscard]] const Tensor& tensor() const { return state_->tensor; }
  void replace(Tensor tensor) const {
    if (state_->open) state_->tensor = std::move(tensor);
  }
  void close() const {
    state_->tensor.reset();
    state_->open = false;
  }

 private:
  struct State {
    Tensor tensor;
    bool open = true;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

Tensor RotaryDecoder::decode_embedded(const Batch& batch, KeyValueCache* cache, TextInputs inputs) const {
  Tensor hidden_states = std::move(inputs.inputs_embeds);
  Tensor inputs_embeds = hidden_states;
  Tensor position_ids =
      inputs.position_ids.defined() ? std::move(inputs.position_ids) : position_ids_of(batch, hidden_states);
  Tensor rotated_ids = position_ids;
  if (plan_.position_ids != nullptr) {
    PositionIds ids = plan_.position_ids(position_ids, hidden_states.size(0));
    position_ids = std::move(ids.of_layers);
    rotated_ids = std::move(ids.rotated);
  }
  std::array<Tensor, 3> masks;  // full, sliding, of linear attention
  if (inputs.masks) {
    masks[0] = std::move((*inputs.masks)[0]);
    masks[1] = std::move((*inputs.masks)[1]);
  } else {
    // Packed sequences are looked for in position_ids, if the masks get any and there is no cache.
    PastTokens past(cache);
    past.cached |= plan_.masks.mapping && !plan_.masks.mapping_has_positions;
    if (plan_.masks.bidirectional) {
      masks[0] = create_bidirectional_mask(run_, hidden_states, batch);
    } else if (plan_.masks.full) {
      masks[0] = plan_.masks.always ? create_full_causal_mask(run_, hidden_states, batch, past)
                                    : create_causal_mask(run_, hidden_states, batch, past);
    }
    if (plan_.masks.sliding) {
      masks[1] = plan_.masks.chunked ? create_chunked_causal_mask(run_, hidden_states, batch, past, *sliding_window)
                                     : create_causal_mask(run_, hidden_states, batch, past, sliding_window);
    }
    if (plan_.masks.has_recurrent()) masks[2] = create_recurrent_mask(batch);
  }
  if (plan_.embedding_dropout > 0) hidden_states = dropout(hidden_states, plan_.embedding_dropout);
  // Gemma's model scales what it looked up behind the positions; GraniteMoeModel, which hands layers the positions
  // before the mask, ahead of them.
  const bool scales_ahead = embed_tokens_.is_scaled_late && plan_.mask_behind_positions;
  if (scales_ahead) {
    hidden_states = multiply_scalar(hidden_states);
    inputs_embeds = hidden_states;
  }
  std::array<RotaryPositions, 2> positions;
  const auto rotate = [&](bool sliding) {
    const std::optional<DType> dtype = plan_.float32_positions ? std::optional(DType::kFloat32) : std::nullopt;
    positions[sliding ? 1 : 0] = plan_.rotate(rotary_emb_[sliding ? 1 : 0], hidden_states, rotated_ids, dtype);
  };
  if (plan_.rotated_per_layer_once && hidden_states.tape().behaviors.gemma3_rotates_per_layer) {
    // `for layer_type in self.config.layer_types`: a dict keeps the last of each kind.
    for (std::size_t i = 0; i < layers_.size(); ++i) rotate(plan_.masks.is_sliding(static_cast<std::int64_t>(i)));
  } else {
    for (const bool sliding : {false, true}) {
      if (has_rotary(sliding)) rotate(sliding);
    }
  }
  rotated_ids.reset();
  if (embed_tokens_.is_scaled_late && !scales_ahead) hidden_states = multiply_scalar(hidden_states);
  Tensor layer_outputs;
  HandedOn handed_on;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const DecoderLayer& layer = *layers_[i];
    if (layer.is_left_out()) continue;
    const std::size_t type = plan_.masks.is_sliding(static_cast<std::int64_t>(i)) ? 1 : 0;
    const RotaryPositions& own = positions[plan_.rotary_by_layer_type ? type : 0];
    const Tensor& mask = masks[plan_.masks.is_linear(static_cast<std::int64_t>(i)) ? 2 : type];
    // position_ids reach no layer's arithmetic, but a checkpoint keeps them among the arguments.
    const Tensor ids = plan_.layers_take_position_ids ? position_ids : Tensor();
    struct Places {
      std::size_t mask = 1, cos = 2, ids = 4, recurrent = 0;  // behind hidden_states; 0: there is none
    };
    Places at;
    KeptTensors keywords = {mask, own.cos, own.sin, ids};
    if (plan_.masks.both) {
      at = {.cos = 4, .ids = 3, .recurrent = 2};
      keywords = {mask, masks[2], ids, own.cos, own.sin};
    } else if (plan_.position_ids_first) {
      at = {.cos = 3, .ids = 2};
      keywords = {mask, ids, own.cos, own.sin};
    } else if (plan_.mask_behind_positions) {
      at = {.mask = 3, .cos = 1};
      keywords = {own.cos, own.sin, mask, ids};
    }
    if (plan_.layers_hand_on) keywords.push_back(handed_on.tensor());
    Tensor outputs = checkpointed(
        run_, {hidden_states}, keywords,
        [&layer, cache, at, handed_on, hands_on = plan_.layers_hand_on](const KeptTensors& kept) {
          const Tensor recurrent = at.recurrent == 0 ? Tensor() : kept[at.recurrent];
          RotaryPositions own{kept[at.cos], kept[at.cos + 1], kept[at.ids], recurrent};
          Tensor handed;
          if (hands_on) {
            handed = kept.back();
            own.handed_on = &handed;
          }
          Tensor output = layer.forward(kept[0], own, kept[at.mask], cache);
          if (hands_on) handed_on.replace(std::move(handed));
          return output;
        },
        cache);
    layer_outputs.reset();
    hidden_states = std::move(outputs);
    if (inputs.holds_layer_outputs || plan_.holds_layer_outputs) layer_outputs = hidden_states;
    if (i < inputs.features_of_layers.size()) {
      hidden_states = with_features(hidden_states, inputs.image_places, inputs.features_of_layers[i]);
    }
  }
  hidden_states = norm_(hidden_states);
  if (plan_.masks.mapping && !plan_.masks.mapping_has_positions) position_ids.reset();
  if (plan_.masks.mapping) {
    drop(masks[0], masks[1], masks[2], inputs_embeds, position_ids);
  } else {
    drop(position_ids, inputs_embeds, masks[0], masks[1]);
  }
  for (RotaryPositions& own : positions) drop(own.cos, own.sin);
  handed_on.close();
  layer_outputs.reset();
  return hidden_states;
}

}  // namespace memcalc
