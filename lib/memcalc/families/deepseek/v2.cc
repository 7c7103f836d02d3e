// DeepSeek-V2: transformers models/deepseek_v2/modeling_deepseek_v2.py.
// MIRRORS(transformers, "models/deepseek_v2/modeling_deepseek_v2.py", "5.17.0")
#include "memcalc/families/deepseek/latent.h"
#include "memcalc/families/deepseek/spec.h"
#include "memcalc/models/complex_rotary.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/sort.h"

namespace memcalc {

namespace {

/// apply_rotary_emb
void rotate_complex(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  Tensor xq = as_complex(query);
  Tensor xk = as_complex(key);
  const Tensor freqs_cis = unsqueeze(positions.cos, 1);
  Tensor xq_out = to_dtype(rotated_complex(query, xq, freqs_cis), query.dtype());
  Tensor xk_out = to_dtype(rotated_complex(key, xk, freqs_cis), key.dtype());
  drop(xq, xk);
  query = std::move(xq_out);
  key = std::move(xk_out);
}

struct DeepseekV2Attention : LatentAttention {
  DeepseekV2Attention(ModuleBuilder& b, const DeepseekV2Spec& spec, const RunSpec& run, bool)
      : LatentAttention(b, spec, run, rotate_complex) {
    rotated_key_dies_first = true;
  }
};

using DeepseekV2Moe = MixtureWithShared<DeepseekV2Spec, GroupedSoftmaxRouter>;

struct DeepseekV2Layer : DenseFirstLayer<DeepseekV2Spec, DeepseekV2Attention, DeepseekV2Moe> {
  DeepseekV2Layer(ModuleBuilder& b, const DeepseekV2Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, spec.mlp_bias) {}
};

}  // namespace

std::unique_ptr<Model> build_deepseek_v2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV2Spec>();
  auto plan = decoder_plan<DeepseekV2Layer>(spec, run);
  plan.rotate = complex_positions;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
