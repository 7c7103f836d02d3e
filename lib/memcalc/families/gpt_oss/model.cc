// gpt-oss: transformers models/gpt_oss/modeling_gpt_oss.py.
// MIRRORS(transformers, "integrations/mxfp4.py", "5.17.0")
// MIRRORS(transformers, "models/gpt_oss/modeling_gpt_oss.py", "5.17.0")
#include <cstdint>
#include <tuple>
#include <utility>

#include "memcalc/families/gpt_oss/spec.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/float32_rms_norm.h"
#include "memcalc/models/routers.h"
#include "memcalc/models/sinks_attention.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/mxfp4.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// GptOssRotaryEmbedding: one angle a pair, not repeated for its second half.
RotaryPositions gpt_oss_positions(const RotaryEmbedding& rotary, const Tensor& x, const Tensor& position_ids,
                                  std::optional<DType> /*dtype*/) {
  const NoGrad no_grad(x.tape().modes);
  RotaryAngles angles(rotary.inverse_frequencies, position_ids);
  Tensor cos = multiply_scalar(cosine(angles.freqs));
  Tensor sin = multiply_scalar(sine(angles.freqs));
  RotaryPositions positions{to_dtype(cos, x.dtype()), to_dtype(sin, x.dtype())};
  drop(angles.positions, angles.freqs, cos, sin);
  return positions;
}

/// _apply_rotary_emb
Tensor rotate_halves(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  std::vector<Tensor> halves = split(x, -1, 2);
  Tensor first_cos = halves[0] * cos;
  Tensor second_sin = halves[1] * sin;
  Tensor first = std::move(first_cos) - std::move(second_sin);
  Tensor second_cos = halves[1] * cos;
  Tensor first_sin = halves[0] * sin;
  Tensor second = std::move(second_cos) + std::move(first_sin);
  Tensor rotated = cat(first, second, -1);
  drop(halves[0], halves[1], first, second);
  return rotated;
}

struct GptOssAttention : HeadProjections {
  Tensor sinks;

  GptOssAttention(ModuleBuilder& b, const GptOssSpec& spec, const RunSpec& run, bool sliding)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias),
        sinks(b.parameter_before("sinks", {spec.num_attention_heads}, "q_proj.weight")) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    {
      const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
      Tensor q_embed = rotate_halves(query_states, cos, sin);
      Tensor k_embed = rotate_halves(key_states, cos, sin);
      query_states = std::move(q_embed);
      key_states = std::move(k_embed);
    }
    return attend(hidden_states, query_states, key_states, value_states, cache,
                  [&](const Tensor& q, const Tensor& k, const Tensor& v) {
                    return attention_with_sinks(q, k, v, mask, sinks, options.dropout);
                  });
  }
};

/// GptOssExperts._apply_gate: clamped SwiGLU of alternating columns.
Tensor apply_clamped_gate(const Tensor& gate_up, std::string_view) {
  Tensor gate = every_second(gate_up, -1);
  Tensor up = every_second(gate_up, -1);
  gate = clamp_above(gate);
  up = clamp(up);
  Tensor glu;
  {
    const Tensor activated = sigmoid(multiply_scalar(gate));
    glu = gate * activated;
  }
  Tensor gated_output = add_scalar(up) * glu;
  drop(gate, up, glu);
  return gated_output;
}

struct GptOssTopKRouter {
  std::int64_t top_k;
  Tensor weight, bias;
  std::shared_ptr<WrappedModule> wrapped;  // null: no adapters

  GptOssTopKRouter(ModuleBuilder& b, const GptOssSpec& spec)
      : top_k(spec.experts.per_token),
        weight(b.parameter("weight", {spec.experts.count, spec.hidden_size})),
        bias(b.parameter("bias", {spec.experts.count}, false)),
        wrapped(remember_router(b, 2)) {}

  [[nodiscard]] Routing forward(const Tensor& hidden_states) const {
    ActiveWrappers wrappers(wrapped.get());
    Tensor router_logits = linear(hidden_states, wrappers.read(weight), bias);
    auto [router_top_value, router_indices] = topk(router_logits, top_k);
    Tensor router_scores = softmax(router_top_value, router_top_value.dtype());
    router_top_value.reset();
    return {std::move(router_logits), std::move(router_scores), std::move(router_indices)};
  }
};

struct GptOssMlp {
  GptOssTopKRouter router;
  Experts experts;

  GptOssMlp(ModuleBuilder& b, const GptOssSpec& spec)
      : router(b.scope("router", [&] { return GptOssTopKRouter(b, spec); })), experts(b.scope("experts", [&] {
          return Experts(b, spec, spec.experts,
                         {.is_transposed = true, .has_bias = true, .apply_gate = apply_clamped_gate});
        })) {}

  /// The output and the router's scores.
  [[nodiscard]] std::pair<Tensor, Tensor> forward(const Tensor& input) const {
    if (experts.packed && experts.packed->down_proj.kind == Quantization::kMxfp4) return forward_mxfp4(input);
    Tensor hidden_states = reshape(input, {-1, input.size(-1)});
    const Routing routing = experts.local(router.forward(hidden_states));
    hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    return {reshape(hidden_states, input.shape()), routing.top_k_weights};
  }

 private:
  /// integrations/mxfp4.py, mlp_forward and Mxfp4GptOssExperts.forward. The output and the router's logits.
  [[nodiscard]] std::pair<Tensor, Tensor> forward_mxfp4(const Tensor& input) const {
    Tensor hidden_states, router_logits, routed_out, intermediate_cache1;
    const Locals locals(hidden_states, intermediate_cache1);
    hidden_states = reshape(input, {-1, input.size(-1)});
    router_logits = linear(hidden_states, router.weight, router.bias);
    const Mxfp4Routing routing = mxfp4_routing(router_logits, router.top_k);
    intermediate_cache1 = mxfp4_gathered_swiglu(hidden_states, experts.packed->gate_up_proj, routing);
    routed_out = mxfp4_scattered(intermediate_cache1, experts.packed->down_proj, routing);
    intermediate_cache1.reset();
    routed_out = reshape(routed_out, input.shape());
    return {std::move(routed_out), std::move(router_logits)};
  }
};

/// GptOssDecoderLayer: the name that held the attention's weights then holds the router's scores.
struct GptOssLayer : PreNormLayer<GptOssSpec, GptOssAttention, Float32RmsNorm, GptOssMlp> {
  using PreNormLayer::PreNormLayer;

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor hidden_states, residual, unused;
    const Locals locals(residual, unused);
    residual = input;
    hidden_states = input_layernorm(input);
    std::tie(hidden_states, unused) = as_tuple(self_attn.forward(hidden_states, positions, mask, cache));
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    std::tie(hidden_states, unused) = mlp.forward(hidden_states);
    hidden_states = residual + hidden_states;
    return hidden_states;
  }

 private:
  [[nodiscard]] static std::pair<Tensor, Tensor> as_tuple(AttentionResult result) {
    return {std::move(result.output), std::move(result.weights)};
  }
};

}  // namespace

std::unique_ptr<Model> build_gpt_oss(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<GptOssSpec>();
  auto plan = decoder_plan<GptOssLayer, Float32RmsNorm>(spec, run);
  plan.rotate = gpt_oss_positions;
  plan.masks = {.full = true,
                .sliding = true,
                .mapping = true,
                .mapping_has_positions = false,
                .sliding_layers = spec.sliding_layers};
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
