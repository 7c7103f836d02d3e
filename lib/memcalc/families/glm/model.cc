// GLM 4: transformers models/glm/modeling_glm.py, models/glm4/modeling_glm4.py.
// MIRRORS(transformers, "models/glm/modeling_glm.py", "5.17.0")
// MIRRORS(transformers, "models/glm4/modeling_glm4.py", "5.17.0")
#include "memcalc/families/glm/spec.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct GlmAttention : RotaryAttention {
  GlmAttention(ModuleBuilder& b, const GlmSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        /*output_bias=*/false) {
    rotation = rotate_neighbours;
  }
};

using GlmLayer = PreNormLayer<GlmSpec, GlmAttention, RmsNorm, FusedGatedMlp>;

struct Glm4Layer {
  GlmAttention self_attn;
  FusedGatedMlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm, post_self_attn_layernorm, post_mlp_layernorm;

  Glm4Layer(ModuleBuilder& b, const GlmSpec& spec, const RunSpec& run, bool sliding)
      : self_attn(b.scope("self_attn", [&] { return GlmAttention(b, spec, run, sliding); })),
        mlp(b.scope("mlp", [&] { return FusedGatedMlp(b, spec); })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size),
        post_self_attn_layernorm(b, "post_self_attn_layernorm", spec.hidden_size),
        post_mlp_layernorm(b, "post_mlp_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    return forward_between_norms(input_layernorm, self_attn, post_self_attn_layernorm, post_attention_layernorm, mlp,
                                 post_mlp_layernorm, input, positions, mask, cache);
  }
};

template <typename Layer>
std::unique_ptr<Model> build(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<GlmSpec>();
  auto plan = decoder_plan<Layer>(spec, run);
  plan.rotary_dim = spec.rotary_dim;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace

std::unique_ptr<Model> build_glm(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build<GlmLayer>(architecture, run, builder);
}

std::unique_ptr<Model> build_glm4(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return build<Glm4Layer>(architecture, run, builder);
}

}  // namespace memcalc
