// What a linear layer with an adapter does where a wrapper hooks modules (symbolic/module_hooks.h).
#pragma once

#include "memcalc/models/fine_tuned_linear.h"

namespace memcalc {

/// A layer with an adapter: peft's module around the layer's own one, both hooked. `product`: the layer's own.
template <typename Layer, typename Product>
[[nodiscard]] Tensor hooked_base(const Layer& layer, const Tensor& x, const Product& product) {
  ModuleHooks& hooks = *layer.weight.tape().modes.module_hooks;
  const FineTunedLinear& tuned = *layer.fine_tuned;
  return tuned.forward_hooked(hooks, x, [&](const Tensor& input) {
    return between_hooks(hooks, &layer, {&layer.weight, &layer.bias}, input, [&](const Tensor& hooked_x) {
      return tuned.quantized.kind == Quantization::kNone
                 ? product(hooked_x)
                 : quantized_linear(hooked_x, tuned.quantized, layer.bias, layer.weight);
    });
  });
}

}  // namespace memcalc
