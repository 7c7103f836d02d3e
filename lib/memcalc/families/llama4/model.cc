// The text model of Llama 4: transformers models/llama4/modeling_llama4.py, Llama4ForCausalLM.
// MIRRORS(transformers, "models/llama4/modeling_llama4.py", "5.17.0")
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/families/llama4/spec.h"
#include "memcalc/models/complex_rotary.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/logarithm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// _norm(x.float()).type_as(x) of both norms
Tensor normalized(const Tensor& x) {
  Tensor result;
  {
    const Tensor wide = to_dtype(x, DType::kFloat32);
    result = wide * reciprocal_sqrt(add_scalar(mean_last(power(wide))));
  }
  return to_dtype(result, x.dtype());
}

struct Llama4TextRmsNorm {
  Tensor weight;
  Llama4TextRmsNorm() = default;
  Llama4TextRmsNorm(ModuleBuilder& b, std::string_view name, std::int64_t width)
      : weight(RmsNorm(b, name, width).weight) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight}, x, [this](const Tensor& hooked_x) {
      const Tensor output = normalized(hooked_x);
      return output * weight;
    });
  }
};

/// apply_rotary_emb
void rotate_complex_heads(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  Tensor xq = as_complex(query);
  Tensor xk = as_complex(key);
  Tensor xq_out = rotated_complex(query, xq, unsqueeze(positions.cos, 2));
  Tensor xk_out = rotated_complex(key, xk, unsqueeze(positions.cos, 2));
  Tensor q_cast = to_dtype(xq_out, query.dtype());
  Tensor k_cast = to_dtype(xk_out, key.dtype());
  drop(xq, xk, xq_out, xk_out);
  query = std::move(q_cast);
  key = std::move(k_cast);
}

struct Llama4TextAttention : HeadProjections {
  bool normalizes, tunes;

  Llama4TextAttention(ModuleBuilder& b, const Llama4TextSpec& spec, const RunSpec& run, bool chunked, LayerIndex index)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), chunked, spec.attention_bias,
                        spec.attention_bias) {
    rotates = spec.rotates[static_cast<std::size_t>(index.value)];
    normalizes = rotates && spec.use_qk_norm;
    tunes = !rotates && spec.attn_temperature_tuning;
    options.softmax_in_float32 = false;
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = heads(q_proj, hidden_states);
    Tensor key_states = heads(k_proj, hidden_states);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    if (rotates) rotate_complex_heads(query_states, key_states, positions);
    if (normalizes) {
      query_states = normalized(query_states);
      key_states = normalized(key_states);
    }
    Tensor places, attn_scales;
    if (tunes) {
      places = no_grad::add(no_grad::arange(hidden_states.tape(), hidden_states.size(1)));
      attn_scales = scales(places, hidden_states);
      const DType dtype = query_states.dtype();
      Tensor scaled = query_states * attn_scales;
      Tensor cast = to_dtype(scaled, dtype);
      scaled.reset();
      query_states = std::move(cast);
    }
    query_states = transpose(query_states, 1, 2);
    key_states = transpose(key_states, 1, 2);
    AttentionResult result = attend(hidden_states, query_states, key_states, value_states, mask, cache);
    drop(places, attn_scales);
    return result;
  }

 private:
  /// log1p(floor((positions.float() + 1.0) / floor_scale)) * attn_scale + 1.0, for every head
  [[nodiscard]] static Tensor scales(const Tensor& places, const Tensor& hidden_states) {
    Tensor floored = no_grad::absolute(no_grad::divide(no_grad::add(no_grad::to(places, DType::kFloat32))));
    Tensor logarithm = no_grad::logarithm(std::move(floored));
    const Tensor sum = no_grad::add(no_grad::multiply(std::move(logarithm)));
    const std::int64_t tokens = hidden_states.size(1);
    return no_grad::expand(no_grad::view(sum, {1, tokens, 1, 1}), {hidden_states.size(0), tokens, 1, 1});
  }
};

/// Llama4TextMLP
struct Llama4TextMlp : GatedMlp {
  Llama4TextMlp(ModuleBuilder& b, const Llama4TextSpec& spec, std::int64_t intermediate_size)
      : GatedMlp(b, spec, intermediate_size, false) {
    liger = false;
  }
};

/// Llama4TextMoe: every expert takes all tokens, multiplied by what the router gives it of each.
struct Llama4TextMoe {
  std::int64_t num_experts, expert_dim, top_k;
  std::string act_fn;
  Tensor gate_up_proj, down_proj;
  Tensor router;  // a linear layer, which peft cannot wrap: its forward returns two tensors
  Llama4TextMlp shared_expert;

  Llama4TextMoe(ModuleBuilder& b, const Llama4TextSpec& spec)
      : num_experts(spec.experts.count),
        expert_dim(spec.intermediate_size),
        top_k(spec.experts.per_token),
        act_fn(spec.hidden_act),
        gate_up_proj(b.scope("experts",
                             [&] {
                               return b.parameter("gate_up_proj", {num_experts, spec.hidden_size, 2 * expert_dim});
                             })),
        down_proj(b.scope("experts",
                          [&] {
                            return b.parameter("down_proj", {num_experts, expert_dim, spec.hidden_size});
                          })),
        router(b.parameter("router.weight", {num_experts, spec.hidden_size})),
        shared_expert(b.scope("shared_expert", [&] { return Llama4TextMlp(b, spec, spec.intermediate_size); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input, Tensor& router_logits) const {
    Tensor hidden_states = reshape(input, {-1, input.size(-1)});
    Tensor router_scores, routed_in, routed_out;
    router_scores = scores(hidden_states, router_logits);
    routed_in = repeat(hidden_states, {num_experts, 1});
    {
      Tensor of_experts = reshape(transpose(router_scores, 0, 1), {-1, 1});
      Tensor product = routed_in * of_experts;
      of_experts.reset();
      routed_in = std::move(product);
    }
    routed_out = experts(routed_in);
    Tensor out = shared_expert.forward(hidden_states);
    {
      const Tensor joined = sum_over(reshape(routed_out, {num_experts, -1, routed_out.size(-1)}), 0, false);
      out = add_in_place(out, joined);
    }
    drop(hidden_states, router_scores, routed_in, routed_out);
    return out;
  }

 private:
  /// Llama4Router
  [[nodiscard]] Tensor scores(const Tensor& hidden_states, Tensor& router_logits) const {
    router_logits = linear(hidden_states, router, {});
    Tensor router_scores;
    Selection top = topk(router_logits, top_k);
    {
      const Tensor lowest = no_grad::full_like(router_logits);
      router_scores = scatter_in_place(lowest, top.indices, top.values, Scattered::kReplaces);
    }
    {
      const DType dtype = router_scores.dtype();
      Tensor opened = sigmoid(to_dtype(router_scores, DType::kFloat32));
      Tensor cast = to_dtype(opened, dtype);
      opened.reset();
      router_scores = std::move(cast);
    }
    drop(top.values, top.indices);
    return router_scores;
  }

  /// Llama4TextExperts
  [[nodiscard]] Tensor experts(const Tensor& routed_in) const {
    Tensor hidden_states = view(routed_in, {num_experts, -1, routed_in.size(-1)});
    Tensor gate_up = matmul(hidden_states, gate_up_proj);
    std::vector<Tensor> parts = split(gate_up, -1, 2);
    Tensor next_states;
    {
      Tensor activated = activation_function(act_fn, parts[0]);
      const Tensor product = parts[1] * activated;
      activated.reset();
      next_states = matmul(product, down_proj);
    }
    next_states = view(next_states, {-1, routed_in.size(-1)});
    drop(hidden_states, gate_up, parts[0], parts[1]);
    return next_states;
  }
};

/// Llama4TextDecoderLayer
struct Llama4TextLayer {
  Llama4TextAttention self_attn;
  std::variant<Llama4TextMlp, Llama4TextMoe> feed_forward;
  Llama4TextRmsNorm input_layernorm, post_attention_layernorm;

  Llama4TextLayer(ModuleBuilder& b, const Llama4TextSpec& spec, const RunSpec& run, bool chunked, LayerIndex index)
      : self_attn(b.scope("self_attn", [&] { return Llama4TextAttention(b, spec, run, chunked, index); })),
        feed_forward(b.scope("feed_forward",
                             [&] {
                               using FeedForward = std::variant<Llama4TextMlp, Llama4TextMoe>;
                               return spec.dense_layers[static_cast<std::size_t>(index.value)]
                                          ? FeedForward{Llama4TextMlp(b, spec, spec.intermediate_size_mlp)}
                                          : FeedForward{Llama4TextMoe(b, spec)};
                             })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    Tensor other = std::move(attention.weights);  // the Python variable _
    hidden_states = residual + attention.output;
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    if (const auto* moe = std::get_if<Llama4TextMoe>(&feed_forward)) {
      Tensor router_logits;
      hidden_states = moe->forward(hidden_states, router_logits);
      other = std::move(router_logits);
    } else {
      hidden_states = std::get<Llama4TextMlp>(feed_forward).forward(hidden_states);
    }
    hidden_states = residual + view(hidden_states, residual.shape());
    drop(residual, attention.output, other);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_llama4_text(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Llama4TextSpec>();
  auto plan = decoder_plan<Llama4TextLayer, Llama4TextRmsNorm>(spec, run);
  // Both, whatever the layers are.
  plan.masks = {.sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers, .chunked = true};
  plan.rotate = complex_positions;
  plan.position_ids_first = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
