// LFM2: transformers models/lfm2/modeling_lfm2.py, models/lfm2_moe/modeling_lfm2_moe.py.
// MIRRORS(transformers, "models/lfm2/modeling_lfm2.py", "5.17.0")
// MIRRORS(transformers, "models/lfm2_moe/modeling_lfm2_moe.py", "5.17.0")
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/families/lfm2/spec.h"
#include "memcalc/models/causal_convolution.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// Lfm2Attention: heads are normalised; what its projection reads lives until it returns.
struct Lfm2Attention {
  Linear q_proj, k_proj, v_proj, out_proj;
  RmsNorm q_layernorm, k_layernorm;
  std::int64_t head_dim;
  AttentionOptions options;

  Lfm2Attention(ModuleBuilder& b, const Lfm2Spec& spec, const RunSpec& run)
      : q_proj(b, "q_proj", spec.hidden_size, spec.num_attention_heads * spec.head_dim, false),
        k_proj(b, "k_proj", spec.hidden_size, spec.num_key_value_heads * spec.head_dim, false),
        v_proj(b, "v_proj", spec.hidden_size, spec.num_key_value_heads * spec.head_dim, false),
        out_proj(b, "out_proj", spec.num_attention_heads * spec.head_dim, spec.hidden_size, false),
        q_layernorm(b, "q_layernorm", spec.head_dim),
        k_layernorm(b, "k_layernorm", spec.head_dim),
        head_dim(spec.head_dim),
        options(causal_attention(run, 0)) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    const Shape hidden_shape{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
    Tensor query_states, key_states, value_states, attn_output;
    const Locals locals(query_states, key_states, value_states, attn_output);
    query_states = transpose(q_layernorm(view(q_proj(hidden_states), hidden_shape)), 1, 2);
    key_states = transpose(k_layernorm(view(k_proj(hidden_states), hidden_shape)), 1, 2);
    value_states = transpose(view(v_proj(hidden_states), hidden_shape), 1, 2);
    apply_rotary(query_states, key_states, positions.cos, positions.sin);
    if (cache != nullptr) cache->update(key_states, value_states);
    AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
    attn_output = flatten_heads(result.output, hidden_states);
    result.output = out_proj(attn_output);
    return result;
  }
};

/// Lfm2ShortConv
struct Lfm2ShortConv {
  CausalConvolution conv;
  Linear in_proj, out_proj;

  Lfm2ShortConv(ModuleBuilder& b, const Lfm2Spec& spec)
      : conv(b, "conv", spec.hidden_size, spec.conv_kernel, spec.conv_bias),
        in_proj(b, "in_proj", spec.hidden_size, 3 * spec.hidden_size, spec.conv_bias),
        out_proj(b, "out_proj", spec.hidden_size, spec.hidden_size, spec.conv_bias) {}

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
    ModuleHooks* hooks = conv.weight.tape().modes.module_hooks;
    const auto inner = [&](const Tensor& input) { return mix(input, attention_mask, cache); };
    if (hooks == nullptr || !hooks->hooks_used_parameters()) return inner(x);
    return between_hooks(*hooks, this, {&conv.weight, &conv.bias}, x, inner);
  }

 private:
  [[nodiscard]] Tensor mix(const Tensor& input, const Tensor& attention_mask, KeyValueCache* cache) const {
    Tensor hidden_states, BCx, B, C, x, y;
    const Locals locals(hidden_states, BCx, B, C, x, y);
    hidden_states = without_padding(input, attention_mask);
    BCx = transpose(in_proj(hidden_states), 1, 2);
    {
      std::vector<Tensor> parts = split(BCx, 1, 3);
      B = std::move(parts[0]);
      C = std::move(parts[1]);
      x = std::move(parts[2]);
    }
    hidden_states = B * x;
    LinearStates states;
    hidden_states = conv(hidden_states, "", cache != nullptr ? &states : nullptr);
    if (cache != nullptr) states.keep(*cache);
    y = C * hidden_states;
    y = contiguous(transpose(y, 1, 2));
    Tensor output = out_proj(y);
    y.reset();
    return output;
  }
};

/// Lfm2MLP
struct Lfm2Mlp {
  Linear w1, w3, w2;

  Lfm2Mlp(ModuleBuilder& b, const Lfm2Spec& spec)
      : w1(b, "w1", spec.hidden_size, spec.intermediate_size, false),
        w3(b, "w3", spec.hidden_size, spec.intermediate_size, false),
        w2(b, "w2", spec.intermediate_size, spec.hidden_size, false) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor activated = silu(w1(x));
    Tensor up = w3(x);
    const Tensor product = std::move(activated) * std::move(up);
    return w2(product);
  }
};

/// Lfm2MoeTopKRouter
struct Lfm2MoeRouter {
  std::int64_t top_k;
  bool norm_topk_prob;
  RouterWeight weight;

  Lfm2MoeRouter(ModuleBuilder& b, const Lfm2MoeSpec& spec)
      : top_k(spec.experts.per_token), norm_topk_prob(spec.norm_topk_prob), weight(b, spec) {}

  /// `expert_bias`: undefined: none.
  [[nodiscard]] Routing forward(const Tensor& hidden_states, const Tensor& expert_bias) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor scores_for_routing, scores_of_chosen;
    const Locals locals(scores_for_routing, scores_of_chosen);
    Tensor router_logits = linear(hidden_states, wrappers.read(weight.parameter), {});
    Tensor routing_weights = sigmoid(router_logits);
    Selection chosen;
    if (expert_bias.defined()) {
      scores_for_routing = routing_weights + expert_bias;
      chosen = topk(scores_for_routing, top_k);
      scores_of_chosen = std::move(chosen.values);
      routing_weights = to_dtype(gather(routing_weights, chosen.indices), router_logits.dtype());
    } else {
      chosen = topk(routing_weights, top_k);
      routing_weights = std::move(chosen.values);
    }
    if (norm_topk_prob) {
      Tensor sum = add_scalar(sum_over(routing_weights, -1, true));
      Tensor shares = sum.requires_grad() ? divide_both(routing_weights, sum) : divide(routing_weights, sum);
      sum.reset();
      routing_weights = std::move(shares);
    }
    routing_weights = multiply_scalar(routing_weights);
    return {std::move(router_logits), std::move(routing_weights), std::move(chosen.indices)};
  }
};

/// Lfm2MoeSparseMoeBlock
struct Lfm2MoeBlock {
  Experts experts;
  Lfm2MoeRouter gate;
  Tensor expert_bias;

  Lfm2MoeBlock(ModuleBuilder& b, const Lfm2MoeSpec& spec)
      : experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        gate(b.scope("gate", [&] { return Lfm2MoeRouter(b, spec); })),
        expert_bias(spec.use_expert_bias ? b.buffer({spec.experts.count}, DType::kFloat32) : Tensor()) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    const Tensor reshaped = view(input, {-1, input.size(-1)});
    const Routing routing = experts.local(gate.forward(reshaped, expert_bias));
    const Tensor output = experts.forward(reshaped, routing.top_k_index, routing.top_k_weights);
    return reshape(output, input.shape());
  }
};

using Lfm2Mixer = std::variant<Lfm2ShortConv, Lfm2Attention>;
using Lfm2FeedForward = std::variant<Lfm2Mlp, Lfm2MoeBlock>;

/// Lfm2DecoderLayer
struct Lfm2Layer {
  Lfm2Mixer mixer;
  Lfm2FeedForward feed_forward;
  RmsNorm operator_norm, ffn_norm;

  template <typename Spec>
  Lfm2Layer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : mixer(mixer_of(b, spec, run, spec.linear_layers[static_cast<std::size_t>(index.value)])),
        feed_forward(b.scope(
            "feed_forward",
            [&] { return feed_forward_of(b, spec, spec.dense_layers[static_cast<std::size_t>(index.value)]); })),
        operator_norm(b, "operator_norm", spec.hidden_size),
        ffn_norm(b, "ffn_norm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    AttentionResult result = mixed(operator_norm(input), positions, mask, cache);
    Tensor hidden_states = std::move(result.output);
    hidden_states = hidden_states + residual;
    hidden_states = hidden_states + fed_forward(hidden_states);
    drop(residual, result.weights);
    return hidden_states;
  }

 private:
  template <typename Spec>
  [[nodiscard]] static Lfm2FeedForward feed_forward_of(ModuleBuilder& b, const Spec& spec, bool is_dense) {
    if constexpr (requires { spec.experts; }) {
      if (!is_dense) return Lfm2MoeBlock(b, spec);
    }
    return Lfm2Mlp(b, spec);
  }

  [[nodiscard]] static Lfm2Mixer mixer_of(ModuleBuilder& b, const Lfm2Spec& spec, const RunSpec& run, bool is_linear) {
    if (is_linear) return b.scope("conv", [&] { return Lfm2Mixer{Lfm2ShortConv(b, spec)}; });
    return b.scope("self_attn", [&] { return Lfm2Mixer{Lfm2Attention(b, spec, run)}; });
  }

  [[nodiscard]] AttentionResult mixed(const Tensor& x, const RotaryPositions& positions, const Tensor& mask,
                                      KeyValueCache* cache) const {
    if (const auto* conv = std::get_if<Lfm2ShortConv>(&mixer)) return {conv->forward(x, mask, cache), {}};
    return std::get<Lfm2Attention>(mixer).forward(x, positions, mask, cache);
  }

  [[nodiscard]] Tensor fed_forward(const Tensor& x) const {
    const Tensor normed = ffn_norm(x);
    return std::visit([&](const auto& module) { return module.forward(normed); }, feed_forward);
  }
};

template <typename Spec>
std::unique_ptr<Model> built(const Spec& spec, const RunSpec& run, ModuleBuilder& builder) {
  auto plan = decoder_plan<Lfm2Layer>(spec, run);
  plan.masks = MaskPlan::hybrid(spec.linear_layers);
  plan.norm = norm_of<RmsNorm>(spec, "embedding_norm");
  plan.position_ids_first = requires { spec.experts; };
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace

std::unique_ptr<Model> build_lfm2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  if (const auto* spec = architecture.get_if<Lfm2MoeSpec>()) return built(*spec, run, builder);
  return built(architecture.as<Lfm2Spec>(), run, builder);
}

}  // namespace memcalc
