// The RMS norm of gated DeltaNet: normalised heads times the SiLU of a gate.
// MIRRORS(transformers, "models/qwen3_next/modeling_qwen3_next.py", "5.17.0")
#pragma once

#include <cstdint>
#include <string_view>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"

namespace memcalc {

/// Qwen3NextRMSNormGated
struct GatedRmsNorm {
  Tensor weight;
  GatedRmsNorm() = default;
  GatedRmsNorm(ModuleBuilder& b, std::string_view name, std::int64_t width) : weight(RmsNorm(b, name, width).weight) {}

  [[nodiscard]] Tensor operator()(const Tensor& x, const Tensor& gate) const {
    return hooked_module(*this, {&weight}, x, [&](const Tensor& hooked_x) { return normalize(hooked_x, gate); });
  }

 private:
  [[nodiscard]] Tensor normalize(const Tensor& x, const Tensor& gate) const {
    const DType input_dtype = x.dtype();
    Tensor hidden_states, variance;
    const Locals locals(hidden_states, variance);
    hidden_states = to_dtype(x, DType::kFloat32);
    variance = mean_last(power(hidden_states));
    hidden_states = hidden_states * reciprocal_sqrt(add_scalar(variance));
    hidden_states = weight * to_dtype(hidden_states, input_dtype);
    hidden_states = hidden_states * silu(to_dtype(gate, DType::kFloat32));
    return to_dtype(hidden_states, input_dtype);
  }
};

}  // namespace memcalc
