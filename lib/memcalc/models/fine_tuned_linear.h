// A linear layer whose weight ranks share (tensor parallel), or whose weight bitsandbytes stores quantised, or to which
// peft adds a low-rank adapter, or both: peft tuners/lora/layer.py and bnb.py. train/ makes weights and adapters; until
// then the layer computes as any other.
// MIRRORS(peft, "tuners/lora/layer.py", "0.21.2")
// MIRRORS(peft, "tuners/lora/model.py", "0.21.2")
// MIRRORS(torch, "distributed/tensor/parallel/style.py", "2.11.0")
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "memcalc/models/hooked_module.h"
#include "memcalc/symbolic/ops/quantized.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// ColwiseParallel and RowwiseParallel of torch/distributed/tensor/parallel/style.py: each rank has some of the rows,
/// or of the columns, of the weight.
enum class LinearSplit : std::uint8_t { kNone, kColumns, kRows };

/// What a plan that splits the sequence between the layers' products makes of one. kLayer: a split by columns finds the
/// whole sequence gathered in front of its module, one by rows leaves this rank's part of it. kHead: gathers the
/// sequence itself, and its outputs unless they stay split for loss_parallel.
enum class SequencePlan : std::uint8_t { kNone, kLayer, kHead };

struct FineTunedLinear {
  std::string name;  // of the module: "model.layers.0.self_attn.q_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::size_t first_parameter = 0;  // places of the layer's parameters among the model's: its weight is the first
  std::size_t last_parameter = 0;
  QuantizedWeight quantized;
  bool is_swapped = false;  // the weight waits on the host (train/swapped_blocks.h)
  LinearSplit split = LinearSplit::kNone;
  std::int64_t ranks = 1;  // that share the weight
  SequencePlan sequence = SequencePlan::kNone;
  Tensor lora_a, lora_b;  // [rank, in], [out, rank]; undefined where the layer has no adapter
  double lora_dropout = 0;
  Tensor lengths;      // DoRA's lora_magnitude_vector, [out]; undefined without it
  Tensor base_weight;  // with DoRA: the layer's own

  /// `base` is the layer's own product.
  template <typename Base>
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& bias, Base base) const {
    Tensor result = split == LinearSplit::kColumns          ? gathered(base(entering(x)))
                    : split == LinearSplit::kRows           ? leaving(base(x))
                    : quantized.kind == Quantization::kNone ? base(x)
                                                            : quantized_linear(x, quantized, bias);
    return lora_a.defined() ? adapt(x, bias, std::move(result)) : result;
  }

  /// The same where a wrapper hooks each module by itself; DoRA is refused there. `base`: the layer's own product
  /// between its hooks.
  template <typename Base>
  [[nodiscard]] Tensor forward_hooked(ModuleHooks& hooks, const Tensor& x, Base base) const {
    if (!lora_a.defined()) return base(x);
    return between_hooks(hooks, this, {}, x, [&](const Tensor& input) { return adapt(input, {}, base(input)); });
  }

 private:
  /// The whole input of a split by columns: backward sums its gradient over the ranks.
  [[nodiscard]] Tensor entering(const Tensor& x) const;
  /// The output of a split by rows, summed over the ranks.
  [[nodiscard]] Tensor leaving(Tensor partial) const;
  /// The output of a split by columns, all of it where the plan asks for that.
  [[nodiscard]] Tensor gathered(const Tensor& outputs) const;
  [[nodiscard]] Tensor adapt(const Tensor& x, const Tensor& bias, Tensor result) const;
  /// lora_B(lora_A(dropout(x))) * scaling. Of a split by columns ranks share lora_B, by rows lora_A (peft
  /// tuners/lora/model.py, add_lora_tp_hooks_dtensor).
  [[nodiscard]] Tensor low_rank_product(const Tensor& x) const;
  [[nodiscard]] Tensor hooked_low_rank_product(ModuleHooks& hooks, const Tensor& x) const;
};

}  // namespace memcalc
