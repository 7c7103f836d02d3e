// The RMS norm of Gemma 3n, of Gemma 4 and of Muse Glimmer, which raises to the power of -0.5.
#pragma once

#include <cstdint>
#include <string_view>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"

namespace memcalc {

/// Gemma3nRMSNorm, Gemma4RMSNorm, MuseGlimmerRMSNorm: all in float32, cast back at the end; with_scale=False has no
/// weight.
struct PowerRmsNorm {
  Tensor weight;
  PowerRmsNorm() = default;
  PowerRmsNorm(ModuleBuilder& b, std::string_view name, std::int64_t width) : weight(RmsNorm(b, name, width).weight) {}

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    return hooked_module(*this, {&weight}, x, [this](const Tensor& hooked_x) { return scaled(hooked_x); });
  }
  [[nodiscard]] static Tensor without_scale(const Tensor& x) {
    const Tensor normed_output = norm(to_dtype(x, DType::kFloat32));
    return to_dtype(normed_output, x.dtype());
  }

 private:
  [[nodiscard]] Tensor scaled(const Tensor& x) const {
    Tensor normed_output = norm(to_dtype(x, DType::kFloat32));
    normed_output = normed_output * to_dtype(weight, DType::kFloat32);
    return to_dtype(normed_output, x.dtype());
  }
  [[nodiscard]] static Tensor norm(Tensor hidden_states) {
    Tensor mean_squared = add_scalar(mean_last(power(hidden_states)));
    Tensor result = hidden_states * power(mean_squared);
    drop(hidden_states, mean_squared);
    return result;
  }
};

}  // namespace memcalc
