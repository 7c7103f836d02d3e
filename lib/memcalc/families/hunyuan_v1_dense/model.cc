// Hunyuan V1 without experts: transformers models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py.
// MIRRORS(transformers, "models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py", "5.17.0")
#include "memcalc/families/hunyuan_v1_dense/spec.h"
#include "memcalc/models/normed_attention.h"
#include "memcalc/models/rotary_decoder.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

std::unique_ptr<Model> build_hunyuan(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<HunyuanSpec>();
  auto plan = decoder_plan<PreNormLayer<HunyuanSpec, RotatedNormedAttention, RmsNorm>>(spec, run);
  plan.late_buffers = [half = spec.head_dim / 2](ModuleBuilder& b) {  // its own _init_weights, behind the base class's
    Tensor inverse;
    {
      const Tensor powers = no_grad::power_of_number(no_grad::divide(no_grad::arange(b.tape, half, DType::kFloat32)));
      inverse = no_grad::multiply(no_grad::reciprocal(powers));
    }
    inverse.reset();
  };
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
