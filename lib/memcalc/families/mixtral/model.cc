// Mixtral: transformers models/mixtral/modeling_mixtral.py.
// MIRRORS(transformers, "models/mixtral/modeling_mixtral.py", "5.17.0")
#include "memcalc/families/mixtral/block.h"
#include "memcalc/families/mixtral/spec.h"
#include "memcalc/models/expert_loop.h"
#include "memcalc/models/megatron_config.h"

namespace memcalc {

namespace {

struct MixtralAttention : RotaryAttention {
  MixtralAttention(ModuleBuilder& b, const MixtralSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, /*qkv_bias=*/false,
                        /*output_bias=*/false) {}
};

struct MixtralMixture : FusedOrLoop<MixtralSparseMoeBlock<MixtralSpec>> {
  MixtralMixture(ModuleBuilder& b, const MixtralSpec& spec) : FusedOrLoop(b, spec, true, kMixtralExperts) {}
};

using MixtralLayer = PreNormLayer<MixtralSpec, MixtralAttention, RmsNorm, MixtralMixture>;

}  // namespace

std::unique_ptr<Model> build_mixtral(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<MixtralSpec>();
  auto plan = decoder_plan<MixtralLayer>(spec, run);
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

void mixtral_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<MixtralSpec>();
  take_decoder(config, spec);
  config.moe =
      MegatronExperts{spec.experts, 0, std::vector<bool>(static_cast<std::size_t>(spec.num_hidden_layers), false)};
}

}  // namespace memcalc
