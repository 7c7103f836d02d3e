// Mamba: transformers models/mamba/modeling_mamba.py, as transformers' own code computes it where mamba-ssm and
// causal-conv1d are not installed: the state space token by token, in Python.
// MIRRORS(transformers, "models/mamba/modeling_mamba.py", "5.17.0")
#include <array>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/families/mamba/mixer.h"
#include "memcalc/families/mamba/spec.h"
#include "memcalc/models/mamba_decoder.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// MambaMixer
struct PlainMambaMixer : MambaMixer {
  PlainMambaMixer(ModuleBuilder& b, const MambaSpec& spec)
      : MambaMixer(b, {.hidden_size = spec.hidden_size,
                       .width = spec.intermediate_size,
                       .state_size = spec.state_size,
                       .conv_kernel = spec.conv_kernel,
                       .time_step_rank = spec.time_step_rank,
                       .conv_bias = spec.use_conv_bias,
                       .projection_bias = spec.use_bias,
                       .activation = spec.hidden_act}) {}

  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache) const {
    const auto try_fused = [&] {
      if (!x.tape().modes.training || cache != nullptr) return;
      // mamba_inner_fn returns None; its arguments were made all the same.
      Tensor skip = to_dtype(D, DType::kFloat32);
      Tensor bias = to_dtype(dt_proj.bias, DType::kFloat32);
      drop(skip, bias);
    };
    return mixed(x, attention_mask, cache, try_fused, [](Tensor&, Tensor&, Tensor&) {});
  }
};

}  // namespace

std::unique_ptr<Model> build_mamba(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  if (run.fine_tuning.quantization != Quantization::kNone) {
    throw Error(
        ErrorCode::kUnsupported,
        "quantize: Mamba multiplies by dt_proj.weight itself, for which a packed weight does not serve; accepted: "
        "16-bit weights");
  }
  return std::make_unique<MambaDecoder<PlainMambaMixer, false>>(architecture.as<MambaSpec>(), run, builder);
}

}  // namespace memcalc
