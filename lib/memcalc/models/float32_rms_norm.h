// The RMS norm of gpt-oss and OLMo 2.
#pragma once

#include <cstdint>
#include <string_view>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"

namespace memcalc {

/// GptOssRMSNorm, Olmo2RMSNorm: multiplies by its weight before it casts back.
struct Float32RmsNorm {
  Tensor weight;
  Float32RmsNorm() = default;
  Float32RmsNorm(ModuleBuilder& b, std::string_view name, std::int64_t width)
      : weight(RmsNorm(b, name, width).weight) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight}, x, [this](const Tensor& hooked_x) { return normalize(hooked_x); });
  }

 private:
  [[nodiscard]] Tensor normalize(const Tensor& x) const {
    const DType input_dtype = x.dtype();
    Tensor variance;  // where a recomputation stops here, it dies last
    Tensor hidden_states = to_dtype(x, DType::kFloat32);
    variance = mean_last(power(hidden_states));
    hidden_states = hidden_states * reciprocal_sqrt(add_scalar(variance));
    Tensor result = to_dtype(weight * hidden_states, input_dtype);
    drop(hidden_states, variance);
    return result;
  }
};

}  // namespace memcalc
