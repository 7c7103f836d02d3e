// A linear layer with a low-rank adapter: peft tuners/lora/layer.py. train/adapters.cc makes the adapters once the model
// stands; until then the layer computes as any other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct FineTunedLinear {
  std::string name;  // of the module: "model.layers.0.self_attn.q_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::size_t last_parameter = 0;  // place of the layer's last parameter among the model's
  Tensor lora_a, lora_b;           // [rank, in], [out, rank]; undefined where the layer has no adapter
  double lora_dropout = 0;

  /// lora.Linear.forward; `base` is the layer's own product.
  template <typename Base>
  [[nodiscard]] Tensor forward(const Tensor& x, Base base) const {
    if (!lora_a.defined()) return base(x);
    Tensor result = base(x);
    const DType result_dtype = result.dtype();
    Tensor input = to_dtype(x, lora_a.dtype());  // _cast_input_dtype
    result = result + multiply_scalar(linear(linear(dropout(input, lora_dropout), lora_a, {}), lora_b, {}));
    result = to_dtype(result, result_dtype);
    return result;
  }
};

}  // namespace memcalc
