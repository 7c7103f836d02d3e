// Qwen1.5-MoE and Qwen2-MoE: transformers models/qwen2_moe/modeling_qwen2_moe.py.
// MIRRORS(transformers, "models/qwen2_moe/modeling_qwen2_moe.py", "5.17.0")
#include "memcalc/families/qwen2_moe/spec.h"
#include "memcalc/models/gated_shared_expert.h"

namespace memcalc {

namespace {

struct Qwen2MoeAttention : RotaryAttention {
  Qwen2MoeAttention(ModuleBuilder& b, const Qwen2MoeSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.qkv_bias,
                        /*output_bias=*/false) {}
};

using Qwen2MoeMlp = DenseOrMixture<MixtureWithGatedShared>;

struct Qwen2MoeLayer : PreNormLayer<Qwen2MoeSpec, Qwen2MoeAttention, RmsNorm, Qwen2MoeMlp> {
  Qwen2MoeLayer(ModuleBuilder& b, const Qwen2MoeSpec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : PreNormLayer(b, spec, run, sliding, [&] {
          const bool dense = spec.dense_layers[static_cast<std::size_t>(index.value)];
          return dense ? Qwen2MoeMlp{GatedMlp(b, spec)} : Qwen2MoeMlp{MixtureWithGatedShared(b, spec)};
        }) {}
};

}  // namespace

std::unique_ptr<Model> build_qwen2_moe(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Qwen2MoeSpec>();
  auto plan = decoder_plan<Qwen2MoeLayer>(spec, run);
  // Both masks are made, whether layers slide or not; where none may, the configuration's window is 0.
  plan.masks = {.sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers};
  plan.position_ids_first = true;
  RotaryDecoderSpec sizes = spec;
  if (!sizes.sliding_window) sizes.sliding_window = 0;
  return std::make_unique<RotaryDecoder>(sizes, run, builder, plan);
}

}  // namespace memcalc
