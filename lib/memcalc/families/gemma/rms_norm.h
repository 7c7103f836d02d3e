// Gemma's RMS norm: transformers models/gemma/modeling_gemma.py, GemmaRMSNorm, which Gemma 2 and 3 repeat.
#pragma once

#include <string_view>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/ops/reduce.h"

namespace memcalc {

/// GemmaRMSNorm: all in float32, times 1 + weight, cast back at the end.
struct GemmaRmsNorm {
  Tensor weight;
  GemmaRmsNorm() = default;
  GemmaRmsNorm(ModuleBuilder& b, std::string_view name, std::int64_t width) : weight(RmsNorm(b, name, width).weight) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight}, x, [this](const Tensor& hooked_x) { return scaled(hooked_x); });
  }

 private:
  [[nodiscard]] Tensor scaled(const Tensor& x) const {
    Tensor output = norm(to_dtype(x, DType::kFloat32));
    output = output * add_scalar(to_dtype(weight, DType::kFloat32));
    return to_dtype(output, x.dtype());
  }
  [[nodiscard]] static Tensor norm(const Tensor& x) { return x * reciprocal_sqrt(add_scalar(mean_last(power(x)))); }
};

}  // namespace memcalc
