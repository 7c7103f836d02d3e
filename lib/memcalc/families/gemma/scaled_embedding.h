// Gemma's embedding, multiplied: of transformers' Gemma, Gemma 2 and 3, and of Gemma 4.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "memcalc/models/hooked_module.h"
#include "memcalc/models/module.h"
#include "memcalc/symbolic/modes.h"
#include "memcalc/symbolic/ops/embedding.h"

namespace memcalc {

/// GemmaTextScaledWordEmbedding: times sqrt(hidden_size), which is a buffer. Before 5.5 Gemma and Gemma 2
/// (`kScaledLateOnce`) had a plain nn.Embedding and multiplied by a number of the host, after their masks.
template <bool kScaledLateOnce>
struct ScaledWordEmbedding : Embedding {
  Tensor embed_scale;
  bool product_requires_grad = false;  // enable_input_require_grads hooks this module, not what it inherits
  ScaledWordEmbedding() = default;
  ScaledWordEmbedding(ModuleBuilder& b, std::string_view name, std::int64_t rows, std::int64_t width)
      : Embedding(b, name, rows, width) {
    if (kScaledLateOnce && b.tape.behaviors.gemma_scales_late) return;
    embed_scale = b.buffer({}, b.dtype);
    product_requires_grad = std::exchange(output_requires_grad, false);
  }

  [[nodiscard]] bool is_scaled_late() const { return !embed_scale.defined(); }

  [[nodiscard]] Tensor operator()(const Tensor& input_ids) const {
    if (is_scaled_late()) return Embedding::operator()(input_ids);
    return hooked_module(*this, {&weight}, input_ids, [this](const Tensor& hooked_ids) { return scaled(hooked_ids); });
  }

 private:
  [[nodiscard]] Tensor scaled(const Tensor& input_ids) const {
    Tape& tape = weight.tape();
    const Scoped<ModuleHooks*> inherited(tape.modes.module_hooks, nullptr);  // super().forward: no module of its own
    Tensor rows = Embedding::operator()(input_ids);                          // Python evaluates the left side first
    Tensor product = std::move(rows) * to_dtype(embed_scale, weight.dtype());
    if (product_requires_grad && tape.modes.grad_enabled && !product.requires_grad()) {
      tape.autograd.require_gradient(product);
    }
    return product;
  }
};

}  // namespace memcalc
