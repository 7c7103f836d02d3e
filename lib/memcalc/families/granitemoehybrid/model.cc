// Granite 4's hybrids: transformers models/granitemoehybrid/modeling_granitemoehybrid.py.
// MIRRORS(transformers, "models/granitemoehybrid/modeling_granitemoehybrid.py", "5.17.0")
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/families/granitemoehybrid/spec.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/mamba2_mixer.h"
#include "memcalc/models/multiplied_embedding.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct GraniteHybridAttention : RotaryAttention {
  GraniteHybridAttention(ModuleBuilder& b, const GraniteHybridSpec& spec, const RunSpec& run)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), /*sliding=*/false, spec.attention_bias,
                        spec.attention_bias) {
    rotates = spec.has_positions;
  }
};

/// GraniteMoeHybridMLP: the parts of its first projection live until it returns.
struct GraniteHybridMlp {
  Linear input_linear, output_linear;
  std::string activation;

  GraniteHybridMlp(ModuleBuilder& b, const GraniteHybridSpec& spec)
      : input_linear(b, "input_linear", spec.hidden_size, 2 * spec.shared_intermediate_size, false),
        output_linear(b, "output_linear", spec.shared_intermediate_size, spec.hidden_size, false),
        activation(spec.hidden_act) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    const std::vector<Tensor> chunked = split(input_linear(x), -1, 2);
    Tensor product = activation_function(activation, chunked[0]) * chunked[1];
    Tensor output = output_linear(product);
    product.reset();
    return output;
  }
};

/// GraniteMoeHybridTopKRouter
struct GraniteMoeHybridRouter {
  std::int64_t top_k;
  RouterWeight weight;

  GraniteMoeHybridRouter(ModuleBuilder& b, const GraniteMoeHybridSpec& spec)
      : top_k(spec.experts.per_token), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& hidden_states) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor router_logits = to_dtype(linear(hidden_states, wrappers.read(weight.parameter), {}), DType::kFloat32);
    Selection chosen = topk(router_logits, top_k);
    Tensor top_k_weights = to_dtype(softmax(chosen.values), hidden_states.dtype());
    chosen.values.reset();
    return {std::move(router_logits), std::move(top_k_weights), std::move(chosen.indices)};
  }
};

/// GraniteMoeHybridMoE
struct GraniteMoeHybridMixture {
  GraniteMoeHybridRouter router;
  Experts experts;

  GraniteMoeHybridMixture(ModuleBuilder& b, const GraniteMoeHybridSpec& spec)
      : router(b.scope("router", [&] { return GraniteMoeHybridRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })) {}

  [[nodiscard]] Tensor forward(const Tensor& layer_input) const {
    const Tensor hidden_states = reshape(layer_input, {-1, layer_input.size(-1)});
    Routing routing = experts.local(router.forward(hidden_states));
    const Tensor layer_output = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    drop(routing.top_k_index, routing.top_k_weights, routing.router_logits);
    return view(layer_output, layer_input.shape());
  }
};

using GraniteHybridMixer = std::variant<Mamba2Mixer, GraniteHybridAttention>;

/// GraniteMoeHybridDecoderLayer
struct GraniteHybridLayer {
  RmsNorm input_layernorm, post_attention_layernorm;
  std::optional<GraniteMoeHybridMixture> block_sparse_moe;
  GraniteHybridMlp shared_mlp;
  GraniteHybridMixer mixer;

  template <typename Spec>
  GraniteHybridLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        block_sparse_moe(mixture_of(b, spec)),
        shared_mlp(b.scope("shared_mlp", [&] { return GraniteHybridMlp(b, spec); })),
        mixer(mixer_of(b, spec, run, spec.linear_layers[static_cast<std::size_t>(index.value)])) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor weights, moe_hidden_states;
    Tensor hidden_states = input_layernorm(input);
    hidden_states = mixed(hidden_states, positions, mask, cache, weights);
    hidden_states = residual + multiply_scalar(hidden_states);
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    if (block_sparse_moe) {
      moe_hidden_states = block_sparse_moe->forward(hidden_states);
      hidden_states = moe_hidden_states + shared_mlp.forward(hidden_states);
    } else {
      hidden_states = shared_mlp.forward(hidden_states);
    }
    hidden_states = residual + multiply_scalar(hidden_states);
    drop(residual, weights, moe_hidden_states);
    return hidden_states;
  }

 private:
  template <typename Spec>
  [[nodiscard]] static std::optional<GraniteMoeHybridMixture> mixture_of(ModuleBuilder& b, const Spec& spec) {
    if constexpr (requires { spec.experts; }) {
      return b.scope("block_sparse_moe",
                     [&] { return std::optional<GraniteMoeHybridMixture>(std::in_place, b, spec); });
    } else {
      return std::nullopt;
    }
  }

  [[nodiscard]] static GraniteHybridMixer mixer_of(ModuleBuilder& b, const GraniteHybridSpec& spec, const RunSpec& run,
                                                   bool is_linear) {
    if (!is_linear)
      return b.scope("self_attn", [&] { return GraniteHybridMixer{GraniteHybridAttention(b, spec, run)}; });
    return b.scope("mamba",
                   [&] { return GraniteHybridMixer{Mamba2Mixer(b, spec.mamba, spec.hidden_size, spec.hidden_act)}; });
  }

  [[nodiscard]] Tensor mixed(const Tensor& x, const RotaryPositions& positions, const Tensor& mask,
                             KeyValueCache* cache, Tensor& weights) const {
    if (const auto* mamba = std::get_if<Mamba2Mixer>(&mixer)) return mamba->forward(x, mask, cache);
    AttentionResult attention = std::get<GraniteHybridAttention>(mixer).forward(x, positions, mask, cache);
    weights = std::move(attention.weights);
    return std::move(attention.output);
  }
};

template <typename Spec>
std::unique_ptr<Model> built(const Spec& spec, const RunSpec& run, ModuleBuilder& builder) {
  auto plan = decoder_plan<GraniteHybridLayer>(spec, run);
  plan.embedding = embedding_of<MultipliedEmbedding>(spec);
  plan.masks = MaskPlan::hybrid(spec.linear_layers);
  plan.masks.mapping_has_positions = false;
  plan.layers_take_position_ids = false;
  if (!spec.has_positions) plan.rotary_dim = 0;
  plan.logits = LogitsChange::kDivided;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace

std::unique_ptr<Model> build_granitemoehybrid(const Architecture& architecture, const RunSpec& run,
                                              ModuleBuilder& builder) {
  if (const auto* spec = architecture.get_if<GraniteMoeHybridSpec>()) return built(*spec, run, builder);
  return built(architecture.as<GraniteHybridSpec>(), run, builder);
}

}  // namespace memcalc
