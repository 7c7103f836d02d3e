// Bamba: transformers models/bamba/modeling_bamba.py, as transformers' own code computes it where mamba-ssm and
// causal-conv1d are not installed.
// MIRRORS(transformers, "models/bamba/modeling_bamba.py", "5.17.0")
#include <utility>
#include <variant>

#include "memcalc/families/bamba/spec.h"
#include "memcalc/models/hybrid_layer.h"
#include "memcalc/models/mamba2_mixer.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct BambaAttention : HeadProjections {
  BambaAttention(ModuleBuilder& b, const BambaSpec& spec, const RunSpec& run)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), /*sliding=*/false, spec.attention_bias,
                        spec.attention_bias) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    apply_partial_rotary(query_states, key_states, positions);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

using BambaMixing = std::variant<Mamba2Mixer, BambaAttention>;

/// BambaDecoderLayer. Eager attention's weights die with it; in transformers they do with the next layer's. Of the
/// model's position_ids transformers makes no sum with the tokens that it has seen, 8 bytes a token for a moment.
struct BambaLayer {
  GatedMlp feed_forward;
  RmsNorm input_layernorm, pre_ff_layernorm;
  BambaMixing mixing;

  BambaLayer(ModuleBuilder& b, const BambaSpec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : feed_forward(b.scope("feed_forward", [&] { return GatedMlp(b, spec, spec.mlp_bias); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        pre_ff_layernorm(b, "pre_ff_layernorm", spec.hidden_size),
        mixing(mixing_of(b, spec, run, spec.linear_layers[static_cast<std::size_t>(index.value)])) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    const auto mix = [&](const Tensor& x) { return mixed(x, positions, mask, cache); };
    return forward_of_hybrid(input, input_layernorm, mix, pre_ff_layernorm, feed_forward);
  }

 private:
  [[nodiscard]] static BambaMixing mixing_of(ModuleBuilder& b, const BambaSpec& spec, const RunSpec& run,
                                             bool is_linear) {
    if (!is_linear) return b.scope("self_attn", [&] { return BambaMixing{BambaAttention(b, spec, run)}; });
    return b.scope("mamba", [&] { return BambaMixing{Mamba2Mixer(b, spec.mamba, spec.hidden_size, spec.hidden_act)}; });
  }

  [[nodiscard]] AttentionResult mixed(const Tensor& x, const RotaryPositions& positions, const Tensor& mask,
                                      KeyValueCache* cache) const {
    if (const auto* mamba = std::get_if<Mamba2Mixer>(&mixing)) return {mamba->forward(x, mask, cache), {}};
    return std::get<BambaAttention>(mixing).forward(x, positions, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_bamba(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<BambaSpec>();
  auto plan = decoder_plan<BambaLayer>(spec, run);
  plan.masks = MaskPlan::hybrid(spec.linear_layers);
  plan.rotary_dim = spec.rotary_dim;
  plan.position_ids_first = true;
  plan.norm = norm_of<RmsNorm>(spec, "final_layernorm");
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
