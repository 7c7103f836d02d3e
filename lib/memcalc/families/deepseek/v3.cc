// DeepSeek-V3 and R1, GLM-4.7-Flash: transformers models/deepseek_v3, models/glm4_moe_lite. Their modules that predict
// further tokens are used in generation only.
// MIRRORS(transformers, "models/deepseek_v3/modeling_deepseek_v3.py", "5.17.0")
// MIRRORS(transformers, "models/glm4_moe_lite/modeling_glm4_moe_lite.py", "5.17.0")
#include "memcalc/families/deepseek/latent.h"
#include "memcalc/families/deepseek/spec.h"
#include "memcalc/symbolic/ops/index.h"

namespace memcalc {

namespace {

/// cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin]) of the even and the odd numbers of x.
Tensor rotate_pairs(const Tensor& x1, const Tensor& x2, const Tensor& cos, const Tensor& sin) {
  Tensor first_cos = x1 * cos;
  Tensor second_sin = x2 * sin;
  Tensor first = std::move(first_cos) - std::move(second_sin);
  Tensor second_cos = x2 * cos;
  Tensor first_sin = x1 * sin;
  Tensor second = std::move(second_cos) + std::move(first_sin);
  Tensor rotated = cat(first, second, -1);
  drop(second, first);  // a Python list dies from its end
  return rotated;
}

/// apply_rotary_pos_emb_interleave
void rotate_interleaved(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const std::int64_t half = positions.cos.size(-1) / 2;
  const Tensor cos = unsqueeze(slice(positions.cos, -1, 0, half), 1);
  const Tensor sin = unsqueeze(slice(positions.sin, -1, 0, half), 1);
  const Tensor q1 = every_second(query, -1), q2 = every_second(query, -1);
  const Tensor k1 = every_second(key, -1), k2 = every_second(key, -1);
  Tensor q_embed = rotate_pairs(q1, q2, cos, sin);
  Tensor k_embed = rotate_pairs(k1, k2, cos, sin);
  query = std::move(q_embed);
  key = std::move(k_embed);
}

void rotate_halves(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  apply_rotary(query, key, positions.cos, positions.sin);
}

struct DeepseekV3Attention : LatentAttention {
  DeepseekV3Attention(ModuleBuilder& b, const DeepseekV3Spec& spec, const RunSpec& run, bool)
      : LatentAttention(b, spec, run, spec.rope_interleave ? rotate_interleaved : rotate_halves) {}
};

struct DeepseekV3TopkRouter : GroupedSigmoidRouter {
  DeepseekV3TopkRouter(ModuleBuilder& b, const DeepseekV3Spec& spec)
      : GroupedSigmoidRouter(b, spec, spec.float32_correction ? DType::kFloat32 : b.dtype) {}
};

using DeepseekV3Moe = MixtureWithShared<DeepseekV3Spec, DeepseekV3TopkRouter>;

struct DeepseekV3Layer : DenseFirstLayer<DeepseekV3Spec, DeepseekV3Attention, DeepseekV3Moe> {
  DeepseekV3Layer(ModuleBuilder& b, const DeepseekV3Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, /*mlp_bias=*/false) {}
};

}  // namespace

std::unique_ptr<Model> build_deepseek_v3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV3Spec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<DeepseekV3Layer>(spec, run));
}

/// Glm4MoeLiteForCausalLM, whose layers are DeepSeek-V3's.
std::unique_ptr<Model> build_glm4_moe_lite(const Architecture& architecture, const RunSpec& run,
                                           ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV3Spec>();
  auto plan = decoder_plan<DeepseekV3Layer>(spec, run);
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
