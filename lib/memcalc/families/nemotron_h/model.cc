// Nemotron-H: transformers models/nemotron_h/modeling_nemotron_h.py.
// MIRRORS(transformers, "models/nemotron_h/modeling_nemotron_h.py", "5.17.0")
#include <optional>
#include <utility>
#include <variant>

#include "memcalc/families/nemotron_h/spec.h"
#include "memcalc/models/mamba2_mixer.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/models/plain_mlp.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/models/routers.h"
#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// NemotronHAttention: without positions.
struct NemotronHAttention : HeadProjections {
  NemotronHAttention(ModuleBuilder& b, const NemotronHSpec& spec, const RunSpec& run)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), /*sliding=*/false, /*qkv_bias=*/false,
                        /*output_bias=*/false) {}

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const Tensor& mask, KeyValueCache* cache) const {
    Tensor query_states = transpose(heads(q_proj, hidden_states), 1, 2);
    Tensor key_states = transpose(heads(k_proj, hidden_states), 1, 2);
    Tensor value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    return attend(hidden_states, query_states, key_states, value_states, mask, cache);
  }
};

/// NemotronHMoE
struct NemotronHMoe {
  Experts experts;
  GroupedSigmoidRouter gate;
  PlainMlp shared_experts;
  std::optional<Linear> fc1_latent_proj, fc2_latent_proj;

  NemotronHMoe(ModuleBuilder& b, const NemotronHSpec& spec)
      : experts(b.scope(
            "experts",
            [&] { return Experts(b, spec, spec.experts, {.has_gate = false, .width = spec.moe_latent_size}); })),
        gate(b.scope("gate", [&] { return GroupedSigmoidRouter(b, spec); })),
        shared_experts(
            b.scope("shared_experts", [&] { return PlainMlp(b, spec, spec.shared_expert_intermediate_size); })) {
    if (spec.moe_latent_size == 0) return;
    fc1_latent_proj = Linear(b, "fc1_latent_proj", spec.hidden_size, spec.moe_latent_size, spec.mlp_bias);
    fc2_latent_proj = Linear(b, "fc2_latent_proj", spec.moe_latent_size, spec.hidden_size, spec.mlp_bias);
  }

  [[nodiscard]] Tensor forward(const Tensor& residuals) const {
    const Routing routing = experts.local(gate.forward(residuals));
    Tensor hidden_states = view(residuals, {-1, residuals.size(-1)});
    if (fc1_latent_proj) hidden_states = (*fc1_latent_proj)(hidden_states);
    hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    if (fc2_latent_proj) hidden_states = (*fc2_latent_proj)(hidden_states);
    hidden_states = view(hidden_states, residuals.shape());
    return hidden_states + shared_experts.forward(residuals);
  }
};

using NemotronHMixer = std::variant<Mamba2Mixer, NemotronHAttention, PlainMlp, NemotronHMoe>;

/// NemotronHBlock
struct NemotronHBlock {
  RmsNorm norm;
  NemotronHMixer mixer;

  NemotronHBlock(ModuleBuilder& b, const NemotronHSpec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : norm(b, "norm", spec.hidden_size), mixer(b.scope("mixer", [&] {
          return mixer_of(b, spec, run, spec.layers[static_cast<std::size_t>(index.value)]);
        })) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& /*positions*/, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states;
    {
      const Tensor converted = to_dtype(input, norm.weight.dtype());
      hidden_states = norm(converted);
    }
    AttentionResult result = mixed(hidden_states, mask, cache);
    hidden_states = std::move(result.output);
    hidden_states = residual + hidden_states;
    drop(residual, result.weights);
    return hidden_states;
  }

 private:
  [[nodiscard]] static NemotronHMixer mixer_of(ModuleBuilder& b, const NemotronHSpec& spec, const RunSpec& run,
                                               NemotronHSpec::Mixer kind) {
    switch (kind) {
      case NemotronHSpec::Mixer::kMamba: return Mamba2Mixer(b, spec.mamba, spec.hidden_size, spec.mamba_hidden_act);
      case NemotronHSpec::Mixer::kAttention: return NemotronHAttention(b, spec, run);
      case NemotronHSpec::Mixer::kExperts: return NemotronHMoe(b, spec);
      case NemotronHSpec::Mixer::kMlp: break;
    }
    return PlainMlp(b, spec);
  }

  [[nodiscard]] AttentionResult mixed(const Tensor& x, const Tensor& mask, KeyValueCache* cache) const {
    if (const auto* mamba = std::get_if<Mamba2Mixer>(&mixer)) return {mamba->forward(x, mask, cache), {}};
    if (const auto* mlp = std::get_if<PlainMlp>(&mixer)) return {mlp->forward(x), {}};
    if (const auto* moe = std::get_if<NemotronHMoe>(&mixer)) return {moe->forward(x), {}};
    return std::get<NemotronHAttention>(mixer).forward(x, mask, cache);
  }
};

}  // namespace

std::unique_ptr<Model> build_nemotron_h(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<NemotronHSpec>();
  auto plan = decoder_plan<NemotronHBlock>(spec, run);
  // An MLP or a mixture gets no mask; whose it is given here does not matter to it.
  std::vector<bool> linear;
  for (const NemotronHSpec::Mixer mixer : spec.layers) linear.push_back(mixer != NemotronHSpec::Mixer::kAttention);
  plan.masks = MaskPlan::hybrid(linear);
  plan.rotary_dim = 0;
  plan.logits = LogitsChange::kFloat32;
  plan.has_classifier = false;
  plan.embedding = embedding_of<Embedding>(spec, "embeddings");
  plan.norm = [&spec](ModuleBuilder& b) -> std::function<Tensor(const Tensor&)> {
    const RmsNorm norm_f(b, "norm_f", spec.hidden_size);
    b.parameters.back().decays = true;  // by its name it is no norm (trainer.py, get_decay_parameter_names)
    return norm_f;
  };
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

// core/models/hybrid (core_v0.19.0): by "M", "*", "-" and "E" the same layers.
void nemotron_h_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<NemotronHSpec>();
  if (spec.moe_latent_size > 0) throw refusal(rules::kMegatronModels, {"Nemotron-H with latent experts"});
  const std::int64_t ranks = config.parallel.tensor * config.parallel.context;
  if (spec.mamba.n_groups % ranks != 0) {
    throw refusal(rules::kMegatronMamba,
                  {std::to_string(spec.mamba.num_heads), std::to_string(spec.mamba.n_groups), std::to_string(ranks)});
  }
  take_decoder(config, spec);
  config.swiglu = config.rotary = config.has_positions = false;
  config.options.squared_relu = spec.hidden_act == "relu2";
  config.bias_linear = spec.mlp_bias;
  config.mamba = spec.mamba;
  for (const NemotronHSpec::Mixer mixer : spec.layers) {
    config.blocks.push_back(mixer == NemotronHSpec::Mixer::kMamba       ? MegatronLayerKind::kMamba
                            : mixer == NemotronHSpec::Mixer::kAttention ? MegatronLayerKind::kAttention
                                                                        : MegatronLayerKind::kMlp);
  }
  if (spec.experts.count > 0) {
    config.moe = MegatronExperts{spec.experts, spec.shared_expert_intermediate_size, spec.dense_layers};
  }
}

}  // namespace memcalc
