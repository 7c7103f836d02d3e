// ERNIE 4.5 without experts: transformers models/ernie4_5/modeling_ernie4_5.py.
// MIRRORS(transformers, "models/ernie4_5/modeling_ernie4_5.py", "5.17.0")
#include "memcalc/families/ernie4_5/spec.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// (x.float() * cos) + (rotate_half(x).float() * sin)
Tensor rotated_in_float32(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor scaled;
  {
    const Tensor wide = to_dtype(x, DType::kFloat32);
    scaled = wide * cos;
  }
  Tensor rotated = half_of_neighbours(x);
  rotated = to_dtype(rotated, DType::kFloat32);
  Tensor product = std::move(rotated) * sin;
  return std::move(scaled) + std::move(product);
}

void rotate_neighbours_in_float32(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const DType original_dtype = query.dtype();
  Tensor cos = interleaved(unsqueeze(positions.cos, 1));
  Tensor sin = interleaved(unsqueeze(positions.sin, 1));
  Tensor q_embed = rotated_in_float32(query, cos, sin);
  Tensor k_embed = rotated_in_float32(key, cos, sin);
  Tensor q_cast = to_dtype(q_embed, original_dtype);
  Tensor k_cast = to_dtype(k_embed, original_dtype);
  drop(cos, sin, q_embed, k_embed);
  query = std::move(q_cast);
  key = std::move(k_cast);
}

struct Ernie45Attention : RotaryAttention {
  Ernie45Attention(ModuleBuilder& b, const Ernie45Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.use_bias, spec.use_bias) {
    rotation = rotate_neighbours_in_float32;
  }
};

struct Ernie45Layer : PreNormLayer<Ernie45Spec, Ernie45Attention, RmsNorm> {
  Ernie45Layer(ModuleBuilder& b, const Ernie45Spec& spec, const RunSpec& run, bool sliding)
      : PreNormLayer(b, spec, run, sliding, [&] { return GatedMlp(b, spec, spec.use_bias); }) {}
};

}  // namespace

std::unique_ptr<Model> build_ernie4_5(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Ernie45Spec>();
  auto plan = decoder_plan<Ernie45Layer>(spec, run);
  plan.float32_positions = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
