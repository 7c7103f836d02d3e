// Granite 4's hybrids: transformers models/granitemoehybrid/modeling_granitemoehybrid.py.
// MIRRORS(transformers, "models/granitemoehybrid/modeling_granitemoehybrid.py", "5.17.0")
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/families/granitemoehybrid/mixture.h"
#include "memcalc/families/granitemoehybrid/spec.h"
#include "memcalc/models/mamba2_mixer.h"
#include "memcalc/models/multiplied_embedding.h"
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

using GraniteHybridMixer = std::variant<Mamba2Mixer, GraniteHybridAttention>;

/// GraniteMoeHybridDecoderLayer
struct GraniteHybridLayer {
  RmsNorm input_layernorm, post_attention_layernorm;
  std::optional<GraniteMixture> block_sparse_moe;
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
  [[nodiscard]] static std::optional<GraniteMixture> mixture_of(ModuleBuilder& b, const Spec& spec) {
    if constexpr (requires { spec.experts; }) {
      return b.scope("block_sparse_moe",
                     [&] { return std::optional<GraniteMixture>(std::in_place, b, spec, spec.experts); });
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
