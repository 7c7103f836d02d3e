#include "memcalc/models/rotary_decoder.h"

#include <tuple>

#include "memcalc/symbolic/ops/liger.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kTiedWeight{"tied parameter"};
constexpr Operator kArange{"aten::arange"}, kDiv{"aten::div"}, kPow{"aten::pow"}, kReciprocal{"aten::reciprocal"};
constexpr Operator kMul{"aten::mul"};

/// 1 / theta ** (arange(0, D, 2) / D), as compute_default_rope_parameters takes its temporaries.
Tensor rope_parameters(Tape& tape, std::int64_t half) {
  Tensor range = tape.empty({half}, DType::kFloat32, kArange);
  Tensor quotient = tape.empty({half}, DType::kFloat32, kDiv);
  range.reset();
  Tensor powers = tape.empty({half}, DType::kFloat32, kPow);
  tape.scratch(8, kPow);
  quotient.reset();
  Tensor reciprocal = tape.empty({half}, DType::kFloat32, kReciprocal);
  Tensor inverse = tape.empty({half}, DType::kFloat32, kMul, Category::kWeights);
  drop(reciprocal, powers);
  return inverse;
}

}  // namespace

RotaryEmbedding::RotaryEmbedding(ModuleBuilder& b, std::int64_t rotary_dim)
    : inverse_frequencies(b.computed_buffer(rope_parameters(b.tape, rotary_dim / 2))),
      original_inverse_frequencies(b.buffer({rotary_dim / 2}, DType::kFloat32)) {}

Tensor RotaryEmbedding::initialize(ModuleBuilder& b) const {
  return rope_parameters(b.tape, inverse_frequencies.size(0));
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
  query = std::move(q_embed);
  key = std::move(k_embed);
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
      liger(b.fine_tuning.liger) {}

void HeadProjections::rotate_heads(Tensor& query, Tensor& key, const RotaryPositions& positions) const {
  if (!liger) return apply_rotary(query, key, positions.cos, positions.sin);
  query = liger_rotate(query, positions.cos, positions.sin);
  key = liger_rotate(key, positions.cos, positions.sin);
}

Tensor HeadProjections::heads(const Linear& projection, const Tensor& hidden_states) const {
  return view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, head_dim});
}

AttentionResult HeadProjections::attend(const Tensor& hidden_states, Tensor& query, Tensor& key, Tensor& value,
                                        const Tensor& mask, std::vector<Tensor>* cache) const {
  if (cache != nullptr) update_cache(*cache, key, value, sliding);
  AttentionResult result = attention_interface(query, key, value, mask, options);
  result.output = reshape(result.output, {hidden_states.size(0), hidden_states.size(1), -1});
  result.output = o_proj(result.output);
  drop(query, key, value);
  return result;
}

AttentionResult RotaryAttention::forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                         const Tensor& mask, std::vector<Tensor>* cache) const {
  Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
  Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
  Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
  rotate_heads(query_states, key_states, positions);
  return attend(hidden_states, query_states, key_states, value_states, mask, cache);
}

GatedMlp::GatedMlp(ModuleBuilder& b, const RotaryDecoderSpec& spec, bool bias)
    : gate_proj(b, "gate_proj", spec.hidden_size, spec.intermediate_size, bias),
      up_proj(b, "up_proj", spec.hidden_size, spec.intermediate_size, bias),
      down_proj(b, "down_proj", spec.intermediate_size, spec.hidden_size, bias),
      act_fn(spec.hidden_act),
      liger(b.fine_tuning.liger) {}

Tensor GatedMlp::forward(const Tensor& x) const {
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
  return down_proj(product);
}

Linear language_model_head(ModuleBuilder& b, const Embedding& embedding, bool tied, std::int64_t in,
                           std::int64_t vocabulary, bool bias) {
  if (!tied) return Linear(b, "lm_head", in, vocabulary, bias);
  Linear head;
  b.tape.scratch(embedding.weight.bytes(), kTiedWeight, Category::kWeights);  // its own, until it is tied
  head.weight = embedding.weight;
  if (bias) head.bias = b.parameter("lm_head.bias", {vocabulary}, false);
  return head;
}

void require_causal_lm(const RunSpec& run, const char* family) {
  if (run.task == Task::kCausalLm) return;
  throw Error(ErrorCode::kUnsupported,
              std::string(family) + " is modelled with its language-model head; accepted: --task causal");
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

}  // namespace memcalc
