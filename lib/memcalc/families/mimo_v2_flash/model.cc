// MiMo-V2-Flash: transformers models/mimo_v2_flash/modeling_mimo_v2_flash.py. Its multi-token-prediction layers are
// not loaded.
// MIRRORS(transformers, "models/mimo_v2_flash/modeling_mimo_v2_flash.py", "5.17.0")
#include "memcalc/families/mimo_v2_flash/spec.h"

#include <utility>

#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// MiMoV2FlashAttention
struct MiMoAttention {
  Linear q_proj, k_proj, v_proj, o_proj;
  Tensor sinks;  // of sliding layers
  std::int64_t head_dim, v_head_dim;
  AttentionOptions options;
  bool sliding;

  MiMoAttention(ModuleBuilder& b, const MiMoV2FlashSpec& spec, const RunSpec& run, bool sliding)
      : head_dim(spec.head_dim),
        v_head_dim(spec.v_head_dim),
        options(causal_attention(run, spec.attention_dropout)),
        sliding(sliding) {
    const std::int64_t heads = spec.num_attention_heads, kept = (sliding ? 2 : 1) * spec.num_key_value_heads;
    q_proj = Linear(b, "q_proj", spec.hidden_size, checked_multiply(heads, head_dim), spec.attention_bias);
    k_proj = Linear(b, "k_proj", spec.hidden_size, checked_multiply(kept, head_dim), spec.attention_bias);
    v_proj = Linear(b, "v_proj", spec.hidden_size, checked_multiply(kept, v_head_dim), spec.attention_bias);
    o_proj = Linear(b, "o_proj", checked_multiply(heads, v_head_dim), spec.hidden_size, false);
    if (sliding) sinks = b.parameter_before("sinks", {heads}, "q_proj.weight");
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = by_head(q_proj, hidden_states, head_dim);
    Tensor key_states = by_head(k_proj, hidden_states, head_dim);
    Tensor value_states = multiply_scalar(by_head(v_proj, hidden_states, v_head_dim));  // * attention_value_scale
    apply_partial_rotary(query_states, key_states, positions);
    if (cache != nullptr) cache->update(key_states, value_states, sliding);
    AttentionResult result = attend(query_states, key_states, value_states, mask);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = o_proj(result.output);
    drop(query_states, key_states, value_states);
    return result;
  }

 private:
  [[nodiscard]] static Tensor by_head(const Linear& projection, const Tensor& hidden_states, std::int64_t width) {
    return transpose(view(projection(hidden_states), {hidden_states.size(0), hidden_states.size(1), -1, width}), 1, 2);
  }

  /// eager_attention_forward: the largest score is subtracted; a sliding layer's sinks take part in the softmax.
  [[nodiscard]] AttentionResult attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                       const Tensor& mask) const {
    const std::int64_t groups = query.size(1) / key.size(1);
    Tensor key_states = repeat_kv(key, groups);
    Tensor value_states = repeat_kv(value, groups);
    Tensor attn_weights = multiply_scalar(matmul(query, transpose(key_states, 2, 3)));
    if (mask.defined()) attn_weights = attn_weights + mask;
    Tensor expanded_sinks;
    if (sliding) {
      expanded_sinks = expand(reshape(sinks, {1, -1, 1, 1}), {query.size(0), -1, query.size(2), -1});
      attn_weights = cat(attn_weights, expanded_sinks, -1);
    }
    Tensor largest = max_along(attn_weights, attn_weights.rank() - 1, true).values;
    attn_weights = attn_weights - std::move(largest);
    Tensor probs = softmax(attn_weights, attn_weights.dtype());
    if (sliding) probs = slice(probs, -1, 0, key.size(2));
    attn_weights = to_dtype(dropout(probs, options.dropout), value_states.dtype());
    Tensor attn_output = matmul(attn_weights, value_states);
    attn_output = contiguous(transpose(attn_output, 1, 2));
    drop(key_states, value_states, expanded_sinks, probs);
    return {std::move(attn_output), std::move(attn_weights)};
  }
};

/// MiMoV2FlashMoE: DeepseekV3MoE without shared experts.
struct MiMoMoe {
  Experts experts;
  GroupedSigmoidRouter gate;

  MiMoMoe(ModuleBuilder& b, const MiMoV2FlashSpec& spec)
      : experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        gate(b.scope("gate", [&] { return GroupedSigmoidRouter(b, spec); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    const Routing routing = experts.local(gate.forward(input));
    const Tensor hidden_states = view(input, {-1, input.size(-1)});
    return view(experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights), input.shape());
  }
};

using MiMoMlp = DenseOrMixture<MiMoMoe>;

struct MiMoLayer : PreNormLayer<MiMoV2FlashSpec, MiMoAttention, RmsNorm, MiMoMlp> {
  MiMoLayer(ModuleBuilder& b, const MiMoV2FlashSpec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : PreNormLayer(b, spec, run, sliding, [&] {
          return spec.dense_layers[static_cast<std::size_t>(index.value)] ? MiMoMlp{GatedMlp(b, spec)}
                                                                          : MiMoMlp{MiMoMoe(b, spec)};
        }) {}
};

}  // namespace

std::unique_ptr<Model> build_mimo_v2_flash(const Architecture& architecture, const RunSpec& run,
                                           ModuleBuilder& builder) {
  const auto& spec = architecture.as<MiMoV2FlashSpec>();
  auto plan = decoder_plan<MiMoLayer>(spec, run);
  plan.masks = {.full = true, .sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers};
  plan.rotary_dim = spec.rotary_dim;
  plan.rotary_by_layer_type = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
